"""Who is told to end so that another job can start: within a queue, or across queues.

Nobody is told in vain: only if the gang then fits, as far as can be known. What was promised to
one job is not counted on by the next.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlrover_cli.scheduling.board import Board
from dlrover_cli.scheduling.model import JobView, QueueView, TaskView, charges
from dlrover_cli.scheduling.panel import Panel, Permission
from dlrover_cli.scheduling.queueing import (
    fewest,
    has_room,
    lacking,
    minimum,
    preemptees,
    reclaimees,
    total_of,
)

Permit = Callable[[TaskView, Sequence[TaskView]], Permission]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A job that has to make room; it runs again later."""

    job: JobView
    evictor: JobView
    reason: str


class Evictions:
    """One phase of a session: goes through waiting jobs, in their turn."""

    def __init__(self, board: Board, panel: Panel) -> None:
        self._board = board
        self._later = board.later()
        self._panel = panel
        self._objection = ""

    def take_objection(self) -> str:
        """Why nobody may be ended for the job that was last asked about, if that is why."""
        objection, self._objection = self._objection, ""
        return objection

    @property
    def queues(self) -> Mapping[str, QueueView]:
        """As they will be, with what was promised."""
        return self._later.queues

    def preempt(self, job: JobView) -> tuple[Eviction, ...]:
        """Victims in the job's own queue."""
        candidates = preemptees(job, self._later.jobs.values())
        reason = f"preempted by {job.name}, which has priority {job.priority}"
        return self._evict(job, candidates, self._panel.preemptable, reason)

    def reclaim(self, job: JobView) -> tuple[Eviction, ...]:
        """Victims in other queues. None for a job whose own queue is full or overused."""
        queue = self._later.queues[job.queue]
        if lacking(queue, charges(minimum(job))) is not None:
            return ()
        total = total_of(self._later.nodes.values())
        candidates = reclaimees(job, self._later.jobs.values(), self._later.queues, total)
        if not candidates or self._panel.overused(queue) is not None:
            return ()
        reason = f"reclaimed by {job.name} of queue {job.queue}"
        return self._evict(job, candidates, self._panel.reclaimable, reason)

    def waits_for_ends(self, job: JobView) -> bool:
        """Whether enough is about to be free: then it is promised to the job."""
        nodes = self._later.nodes
        if not self._fits(job, self._later, list(nodes)):
            return False
        self._later.promise(minimum(job), list(nodes))
        return True

    def _evict(
        self, job: JobView, candidates: Sequence[JobView], permit: Permit, reason: str
    ) -> tuple[Eviction, ...]:
        needed = minimum(job)
        if not candidates or not needed:
            return ()
        offered = [task for each in candidates for task in each.placed]
        permission = permit(needed[0], offered)
        self._objection = permission.objection
        candidates = [each for each in candidates if _uids(each.placed) <= permission.uids]
        nodes = self._open_to(needed[0], candidates)
        victims = fewest(
            candidates, lambda chosen: self._fits(job, self._later.without(chosen), nodes)
        )
        if not victims:
            return ()
        self._later = self._later.without(victims)
        self._later.promise(needed, nodes)
        for victim in victims:
            self._board.tell_to_end(self._board.jobs[victim.uid])
        return tuple(Eviction(victim, job, reason) for victim in victims)

    def _open_to(self, task: TaskView, candidates: Sequence[JobView]) -> list[str]:
        """Where the task could run if there were room. Asked only if somebody could make some."""
        if not candidates:
            return []
        nodes = list(self._board.nodes.values())
        refusals = self._panel.refusals(task, nodes)
        full = [node for node in nodes if not _is_final(refusals.get(node.name))]
        # A full node was refused before the extenders were asked about it.
        outside = self._panel.refusals(task, full, of_extenders_only=True)
        return [node.name for node in full if not _is_final(outside.get(node.name))]

    def _fits(self, job: JobView, board: Board, nodes: Iterable[str]) -> bool:
        needed = minimum(job)
        if lacking(board.queues[job.queue], charges(needed)) is not None:
            return False
        return has_room(needed, [board.nodes[name] for name in nodes])


def _uids(tasks: Iterable[TaskView]) -> frozenset[str]:
    return frozenset(task.uid for task in tasks)


def _is_final(refusal: object) -> bool:
    return bool(getattr(refusal, "is_final", False))
