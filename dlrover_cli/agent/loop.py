"""The agent's waits: for the next observation, for a call that blocks, for a while.

A signal, the manager's last word and a request to abort end each of them at once, as an exception.
Other requests are for the waits of an attempt that runs; elsewhere they are answered here.
"""

import signal
import time
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.multiprocessing import SignalException

from dlrover_cli.agent.agreement import ControlStoreLost
from dlrover_cli.agent.calls import Call, CallFinished
from dlrover_cli.agent.requests import AbortRequested, OperatorRequest, Phase, reply_in
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


class HandedOn:
    """A signal came that was meant for somebody else."""


class Loop:
    """Belongs to the thread that runs the agent."""

    def __init__(
        self, inbox: Inbox, hand_on: Callable[[signal.Signals], bool] = lambda signum: False
    ) -> None:
        """``hand_on`` may give a signal to whom it was meant for."""
        self._inbox = inbox
        self.phase = Phase.MEETING
        """What the waits are for; other threads may read it."""
        self._hand_on = hand_on

    def next(self, deadline: float | None) -> object | None:
        """The next observation, None after the deadline.

        Raises SignalException, TakenOut, AbortRequested.
        """
        while True:
            observation = self._sift(self._inbox.next(deadline))
            if not isinstance(observation, OperatorRequest) or self.phase.takes_requests:
                return observation
            reply = reply_in(self.phase, observation.command)
            if observation.reply(reply) and reply.done and observation.is_abort:
                raise AbortRequested(observation)

    def _sift(self, observation: object | None) -> object | None:
        match observation:
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
            case SignalReceived(signum=signum) if self._hand_on(signum):
                return HandedOn()
            case SignalReceived(signum=signum):
                raise SignalException(f"the launcher received {signum.name}", sigval=signum)
            case _:
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
