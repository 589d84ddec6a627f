"""What a person asks of a running job: the agent's thread takes it, and says what follows.

A request waits in the agent's inbox. Whoever posted it learns within a moment what the agent makes
of it or, where the agent is busy, what it is busy with and what follows from that.
"""

import threading
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from dlrover_cli.control.wire import By, Command, in_words
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode


class Phase(Enum):
    """What an agent is about, in words for somebody who wants something of it."""

    MEETING = "the nodes are in the rendezvous"
    STARTING = "the workers are being started"
    RUNNING = "the workers run"
    FINISHING = "the workers of this node have succeeded and wait for those of the others"
    DECIDING = "something has happened that the job is deciding on right now"
    STOPPING = "the workers are being stopped"
    BACKING_OFF = "the job waits before its next attempt"
    ENDING = "the run is ending"

    @property
    def takes_requests(self) -> bool:
        """Whether there is an attempt that can be ended by a decision of the whole job."""
        return self in (Phase.RUNNING, Phase.FINISHING)

    @property
    def leads_to_an_attempt(self) -> bool:
        return self in (Phase.MEETING, Phase.STARTING, Phase.STOPPING, Phase.BACKING_OFF)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent makes of a request."""

    done: bool
    says: str


UNDECIDED = Reply(
    done=False,
    says="the nodes have not agreed yet on what is done next; dlrover-job why tells what it was",
)
ABORTING = Reply(done=False, says="the job is being aborted: nothing else is done")


@dataclass(slots=True, eq=False)
class OperatorRequest:
    """An observation that somebody waits on."""

    command: Command
    by: By
    _reply: Reply | None = None
    _is_taken: bool = False
    _replied: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_abort(self) -> bool:
        return self.command is Command.ABORT

    @property
    def reason(self) -> str:
        return in_words(self.command, self.by)

    def reply(self, reply: Reply) -> bool:
        """Whether this reply stands; if another one came first, nothing must come of this one."""
        with self._lock:
            if self._reply is not None:
                return False
            self._reply = reply
        self._replied.set()
        return True

    def take(self) -> bool:
        """Bring it before the job, and reply once that has decided; False if it is too late."""
        with self._lock:
            self._is_taken = self._reply is None
            return self._is_taken

    def give_up(self, reply: Reply) -> Reply:
        """What is said if nobody waits any more; nothing comes of it, unless it was taken."""
        with self._lock:
            if self._reply is None and not self._is_taken:
                self._reply = reply
            return self._reply or UNDECIDED

    def wait(self, seconds: float) -> Reply | None:
        """The reply; None if the agent has not looked at it within so many seconds."""
        self._replied.wait(seconds)
        return self._reply

    def to_json(self) -> dict[str, Any]:
        """For the other nodes, which adopt what follows from it."""
        return {"command": self.command.value, "reason": self.reason, "by": asdict(self.by)}


class AbortRequested(DlroverError):
    """Somebody wants the job to be aborted, and there is no attempt to decide about first."""

    exit_code = ExitCode.ABORTED

    def __init__(self, request: OperatorRequest) -> None:
        super().__init__(request.reason)
        self.request = request


def reply_in(phase: Phase, command: Command) -> Reply:
    """What is to be said to a request that comes while no attempt can be decided about. Pure."""
    words = phase.value
    if phase is Phase.ENDING:
        return Reply(done=False, says=f"{words}: nothing more can be asked of it")
    if command is Command.ABORT:
        return Reply(
            done=True,
            says=f"{words}; the job is aborted, ends with exit code 82, and nothing retries",
        )
    if command is Command.RESTART and phase.leads_to_an_attempt:
        return Reply(done=True, says=f"{words}: a new attempt follows anyway")
    return Reply(done=False, says=f"{words}: nothing is done; ask again once the workers run")
