"""The states of a run, and from which to which it may go. One table; nothing else changes states.

PENDING ─► STARTING ─► RUNNING ─► FINISHED | FAILED
   │          │           │
   └──────────┴───────────┴─► STOPPING ─► KILLED, or PENDING to run again later
SKIPPED: what it comes after did not succeed.   LOST: its process is gone without a word.
"""

from collections.abc import Mapping
from enum import Enum

from dlrover_cli.errors import DlroverError


class RunState(Enum):
    """How far a run has come."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    LOST = "LOST"
    SKIPPED = "SKIPPED"

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens by itself. A lost run may still have processes."""
        return self in ENDED or self is RunState.LOST

    def may_become(self, following: "RunState") -> bool:
        return following in _FOLLOWING[self]


class IllegalTransition(DlroverError):
    """A run cannot go from the state it is in to the one that was asked for."""

    def __init__(self, run_id: str, now: RunState, wanted: RunState) -> None:
        super().__init__(f"run {run_id} is {now.value} and cannot become {wanted.value}")
        self.now = now


ENDED = frozenset({RunState.FINISHED, RunState.FAILED, RunState.KILLED, RunState.SKIPPED})

_FOLLOWING: Mapping[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset(
        {RunState.STARTING, RunState.STOPPING, RunState.SKIPPED, RunState.FAILED, RunState.LOST}
    ),
    RunState.STARTING: frozenset(
        {RunState.RUNNING, RunState.STOPPING, RunState.FAILED, RunState.LOST}
    ),
    RunState.RUNNING: frozenset(
        {RunState.FINISHED, RunState.FAILED, RunState.STOPPING, RunState.LOST}
    ),
    RunState.STOPPING: frozenset(
        {
            RunState.KILLED,
            RunState.FINISHED,
            RunState.FAILED,
            RunState.PENDING,
            RunState.LOST,
        }
    ),
    RunState.LOST: frozenset({RunState.STOPPING}),
    RunState.FINISHED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.KILLED: frozenset(),
    RunState.SKIPPED: frozenset(),
}
