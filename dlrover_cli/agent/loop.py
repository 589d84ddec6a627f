"""The agent's waits: for the next observation, for a call that blocks, for a while.

A signal and the manager's last word end each of them at once, as an exception.
"""

import time
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.multiprocessing import SignalException

from dlrover_cli.agent.agreement import ControlStoreLost
from dlrover_cli.agent.calls import Call, CallFinished
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.leash.client import Fenced, Unleashed
from dlrover_cli.workers.inbox import Inbox, SignalReceived

STORE_SECONDS = 10.0
"""What an operation on a store may take."""

_ORPHAN_SECONDS = 3.0
"""What workers get when the job has lost its manager: nothing shall be left after ten seconds."""


class TakenOut(DlroverError):
    """The manager of the job wants this node to go, or is gone itself."""

    def __init__(self, message: str, *, exit_code: int, grace: float) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.grace = grace
        """Seconds that the workers have left."""


class Loop:
    """Belongs to the thread that runs the agent."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def next(self, deadline: float | None) -> object | None:
        """The next observation, None after the deadline. Raises SignalException, TakenOut."""
        match self._inbox.next(deadline):
            case Fenced(reason=reason):
                raise TakenOut(
                    f"the manager has taken this node out of the job: {reason}",
                    exit_code=ExitCode.REPLACE_NODE,
                    grace=0.0,
                )
            case Unleashed():
                raise TakenOut(
                    "the manager of the job is gone",
                    exit_code=ExitCode.FAILURE,
                    grace=_ORPHAN_SECONDS,
                )
            case SignalReceived(signum=signum):
                raise SignalException(f"the launcher received {signum.name}", sigval=signum)
            case observation:
                return observation

    def call(self, name: str, function: Callable[[], Any], seconds: float = STORE_SECONDS) -> Any:
        """Run something that blocks off the loop; a signal is acted on meanwhile.

        A call that does not come back in time is given up: a store behind a link that was cut
        answers neither yes nor no.
        """
        call = Call(self._inbox, name, function)
        deadline = time.monotonic() + seconds
        held_back: list[object] = []
        try:
            while not call.done:
                observation = self.next(deadline)
                if observation is None:
                    break
                if not isinstance(observation, CallFinished):
                    held_back.append(observation)
        finally:  # a signal must not cost the ends of workers that came before it
            for observation in held_back:
                self._inbox.post(observation)
        if not call.done:
            raise ControlStoreLost(f"no answer within {seconds:g} s ({name})")
        return call.result()

    def wait(self, seconds: float) -> None:
        """Let observations go by for so many seconds: nothing runs that could be of interest."""
        deadline = time.monotonic() + seconds
        while seconds > 0 and self.next(deadline) is not None:
            pass
