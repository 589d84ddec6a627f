"""Let a service decide, and do without it if it does not answer in time.

    cd examples/failover
    python policy_service.py 8765 &
    export FAILOVER_SERVICE_URL=http://127.0.0.1:8765/decide
    dlrover-job failover test --extension ask_service::AskService broken_gpu.json

A time-out of an HTTP client is for each read from the socket, not for the whole: a server that
sends a byte now and then is waited for without end. So the request runs in a thread, and it is the
answer that has the deadline. None means no opinion: then the rules are asked, then NORMAL follows.
"""

import json
import os
import threading
from queue import Empty, SimpleQueue
from urllib.request import Request, urlopen

from dlrover_cli.contracts import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    FailoverStrategy,
)

LONGEST_ANSWER = 10_000


class AskService(DynamicAgentFailoverExtension):
    def __init__(self) -> None:
        # Without an address there is nothing to ask, and the job is not started: better now than
        # at the first failure in the middle of the night.
        self._url = os.environ["FAILOVER_SERVICE_URL"]
        self._seconds = float(os.environ.get("FAILOVER_SERVICE_SECONDS", "5"))

    def get_user_failover_strategy(self, failure_info: AgentFailureInfo) -> FailoverStrategy | None:
        answers: SimpleQueue[str] = SimpleQueue()
        threading.Thread(
            target=self._ask, args=(failure_info, answers), name="failover-service", daemon=True
        ).start()
        try:
            name = answers.get(timeout=self._seconds)
        except Empty:
            print(f"{self._url} has not answered within {self._seconds:g} s")
            return None
        return FailoverStrategy.__members__.get(name)

    def _ask(self, failure_info: AgentFailureInfo, answers: "SimpleQueue[str]") -> None:
        body = json.dumps(failure_info.to_json()).encode()
        request = Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=self._seconds) as response:
                answers.put(json.loads(response.read(LONGEST_ANSWER))["strategy"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{self._url} cannot be asked: {error}")
            answers.put("")
