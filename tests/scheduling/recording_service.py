"""An extender on loopback that agrees, or answers as told, and keeps what it was asked."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERBS = (
    *("onSessionOpen", "onSessionClose", "jobEnqueueable", "jobEnqueued", "queueOverused"),
    *("predicate", "prioritize", "preemptable", "reclaimable", "jobReady"),
    *("allocateFunc", "deallocateFunc"),
)
_AGREES: dict[str, dict[str, Any]] = {
    "jobEnqueueable": {"status": 1},
    "queueOverused": {"overused": False},
    "predicate": {"code": 0, "errorMessage": ""},
    "prioritize": {"nodeScore": {}},
    "preemptable": {"status": 0},
    "reclaimable": {"status": 0},
    "jobReady": {"status": True},
}


@dataclass
class RecordingService:
    """What it was asked, in order; ``answers`` replaces what it says by the name of a verb."""

    url: str = ""
    questions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    """A number is the status of an error; a function is called, and the answer is empty."""
    failed: list[str] = field(default_factory=list)
    """Tasks whose end it could not take."""
    refused_nodes: dict[str, str] = field(default_factory=dict)
    """By the names of nodes, why no task may run there."""
    is_faulty: Callable[[], bool] = lambda: False
    """Whether it fails to answer now."""

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.questions]

    def tasks(self, verb: str) -> list[str]:
        """The names of the tasks that it was asked or told about."""
        return [body["task"]["name"] for each, body in self.questions if each == verb]

    def held(self) -> dict[str, int]:
        """By the name of a task, how often more it was allocated than given back."""
        held = Counter(self.tasks("allocateFunc"))
        held.subtract(self.tasks("deallocateFunc"))
        held.update(self.failed)
        return {name: count for name, count in held.items() if count}

    def settings(self, *verbs: str) -> dict[str, Any]:
        """The arguments of an extender file; all verbs if none is named."""
        named = {f"extender.{verb}Verb": verb for verb in verbs or VERBS}
        return {"extender.urlPrefix": self.url, "extender.httpTimeout": "10s", **named}

    def answer(self, verb: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.questions.append((verb, body))
        given = self.answers.get(verb, _AGREES.get(verb, {}))
        if verb == "predicate" and (why := self.refused_nodes.get(body["node"]["name"])):
            return 200, {"code": 1, "errorMessage": why}
        if self.is_faulty():
            given = 500
        if callable(given):
            given()
            return 200, {}
        if not isinstance(given, int):
            return 200, given
        if verb == "deallocateFunc":
            self.failed.append(body["task"]["name"])
        return given, {}


@contextmanager
def recording_service() -> Iterator[RecordingService]:
    service = RecordingService()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # an answer is two writes

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, document = service.answer(self.path.strip("/"), body)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="extender")
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
