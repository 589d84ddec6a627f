"""Who is asked in a session: the interface of built-in and remote deciders alike.

A plugin that has no opinion on a question answers as `Indifferent` does, and may derive from it.
What a plugin answers, it means. One that cannot answer, and whose answer may not be done without,
raises `HookFailed`: the session then decides as if it had said no, and tells the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from dlrover_cli.errors import DlroverError
from dlrover_cli.scheduling.model import JobView, NodeView, QueueView, SessionView, TaskView


class Vote(IntEnum):
    """An answer to a question of several plugins: one REJECT rejects."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not; the sentence is shown to a person."""

    reason: str
    by: str = ""
    """The name of the plugin, where the reason does not say it."""
    is_final: bool = False
    """Whether no victim could change it: the node is wrong for the task, not merely full."""
    lacks_room: bool = False
    """Whether the node is merely full: the task keeps its turn, and waits for room there."""

    def __str__(self) -> str:
        return f"{self.reason} ({self.by})" if self.by else self.reason


@dataclass(frozen=True, slots=True)
class Victims:
    """Which of the tasks that were offered may be ended; none of them is a veto."""

    uids: frozenset[str] = frozenset()


class HookFailed(DlroverError):
    """A plugin could not answer; its message names the plugin and says what happened."""


class SessionPlugin(Protocol):
    """One decider. `predicate` is called from several threads at once, all else from one."""

    @property
    def name(self) -> str:
        """How a person knows it."""
        ...

    def session_open(self, view: SessionView) -> None: ...

    def session_close(self, view: SessionView) -> None:
        """Always follows `session_open`, also if that one has failed."""
        ...

    def job_enqueueable(self, job: JobView) -> Vote:
        """Whether the job may come into its queue. Asked again and again; changes nothing."""
        ...

    def job_enqueued(self, job: JobView) -> None: ...

    def queue_overused(self, queue: QueueView) -> bool:
        """Whether the queue has more than its share, so that no job of it starts now."""
        ...

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        """Why the task may not run on this node."""
        ...

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        """Scores by the names of nodes, higher is better; they are added to those of others."""
        ...

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        """Which of these, of the same queue, may be ended for the evictor; None abstains."""
        ...

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        """Which of these, of other queues, may be ended for the evictor; None abstains."""
        ...

    def job_ready(self, job: JobView) -> bool:
        """Whether enough of the job's tasks have nodes for it to start."""
        ...

    def allocated(self, task: TaskView) -> Refusal | None:
        """The task has got its node. A refusal takes it back; all are told by `deallocated`."""
        ...

    def deallocated(self, task: TaskView) -> None:
        """The task's node is free again: it has ended, or its job did not start after all."""
        ...


class Indifferent:
    """Has no opinion on anything."""

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def session_open(self, view: SessionView) -> None:
        return None

    def session_close(self, view: SessionView) -> None:
        return None

    def job_enqueueable(self, job: JobView) -> Vote:
        return Vote.ABSTAIN

    def job_enqueued(self, job: JobView) -> None:
        return None

    def queue_overused(self, queue: QueueView) -> bool:
        return False

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        return None

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        return {}

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        return None

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        return None

    def job_ready(self, job: JobView) -> bool:
        return True

    def allocated(self, task: TaskView) -> Refusal | None:
        return None

    def deallocated(self, task: TaskView) -> None:
        return None
