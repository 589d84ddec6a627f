"""Who goes first, what a queue may still hold, and who has to make room. Pure.

Within a queue the higher priority goes first, then the older job. Among queues the one that holds
least for its weight goes first. Whoever cannot start for want of room keeps its turn, so that none
is overtaken for ever by smaller ones. Waiting adds to a job's priority, so that none is overtaken
for ever by more important ones: what it has gained orders it and protects it while it runs, but
ends nobody else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import floor

from dlrover_cli.scheduling.model import (
    AGENTS,
    JobView,
    NodeView,
    QueueView,
    Resources,
    TaskStatus,
    TaskView,
    add,
    charges,
    subtract,
)

_TINY = 1e-9
"""Sums of fractions of a core are not exact."""
_MOST_TO_COMBINE = 8
"""Beyond so many tasks on a node nobody goes through all orders in which they may end."""


def gained(waited: float, aging: float | None) -> int:
    """The priority that so many seconds of waiting add: one for each ``aging``, none if None."""
    return 0 if aging is None else floor(max(0.0, waited) / aging)


def in_turn(jobs: Iterable[JobView]) -> list[JobView]:
    """The jobs of one queue, the next one first."""
    return sorted(
        jobs, key=lambda job: (not job.is_owed_room, -job.standing, job.submitted, job.uid)
    )


def by_importance(jobs: Iterable[JobView]) -> list[JobView]:
    """Those that may end others by their priority: what they have gained by waiting is no help."""
    return sorted(
        jobs, key=lambda job: (not job.is_owed_room, -job.priority, job.submitted, job.uid)
    )


def next_queue(
    queues: Iterable[QueueView], total: Resources, first: Mapping[str, JobView]
) -> QueueView:
    """The queue that holds least for its weight; where that is the same, whose first is oldest.

    ``first`` has the first job of each queue's line.
    """

    def turn(queue: QueueView) -> tuple[float, float, str]:
        return weighted_share(queue, total), first[queue.name].submitted, queue.name

    return min(queues, key=turn)


def total_of(nodes: Iterable[NodeView]) -> dict[str, float]:
    """All that there is; each node is good for one agent as far as shares go."""
    there = list(nodes)
    return add(*(node.allocatable for node in there), {AGENTS: float(len(there))})


def weighted_share(queue: QueueView, total: Resources, more: Resources | None = None) -> float:
    """The largest part of anything that it holds, with ``more`` or less of it, for its weight."""
    held = add(queue.allocated, more or {})
    parts = (amount / total[name] for name, amount in held.items() if total.get(name))
    return max(parts, default=0.0) / queue.weight


def lacking(queue: QueueView, wanted: Resources) -> str | None:
    """What of the queue's capacity is not there for this, in words."""
    for name, limit in queue.capacity.items():
        held, more = queue.allocated.get(name, 0.0), wanted.get(name, 0.0)
        if more > 0 and held + more > limit + _TINY:
            return (
                f"queue {queue.name} holds {held:g} of {limit:g} {name}, and the job needs {more:g}"
            )
    return None


def never_fits(queue: QueueView, wanted: Resources) -> str | None:
    """Why a job would wait in this queue for ever."""
    for name, limit in queue.capacity.items():
        if wanted.get(name, 0.0) > limit + _TINY:
            return f"it needs {wanted[name]:g} {name}, and queue {queue.name} has {limit:g} in all"
    return None


def minimum(job: JobView) -> tuple[TaskView, ...]:
    """The tasks that it still needs in order to start."""
    return job.waiting[: max(0, job.min_available - len(job.placed))]


def fits(task: TaskView, idle: Resources) -> bool:
    return all(
        amount <= idle.get(name, 0.0) + _TINY
        for name, amount in task.resources.items()
        if amount > 0
    )


def slots(task: TaskView, idle: Resources) -> int | None:
    """How many tasks like this one fit there; None if it asks for nothing."""
    counts = [
        int((idle.get(name, 0.0) + _TINY) // amount)
        for name, amount in task.resources.items()
        if amount > 0
    ]
    return min(counts) if counts else None


def has_room(tasks: Sequence[TaskView], nodes: Iterable[NodeView]) -> bool:
    """Whether these tasks, which are all alike, fit on the nodes together."""
    if not tasks:
        return True
    counts = [slots(tasks[0], node.idle) for node in nodes]
    return None in counts or sum(filter(None, counts)) >= len(tasks)


# ---- who makes room ----------------------------------------------------------------------------


def preemptees(evictor: JobView, jobs: Iterable[JobView]) -> list[JobView]:
    """Running jobs of the same queue that matter less; the one that matters least first.

    Whoever had to wait long before it started is not ended at once by the next that comes: it
    would start again and again, and never end.
    """
    found = [
        job
        for job in jobs
        if job.queue == evictor.queue and job.standing < evictor.priority and _is_running(job)
    ]
    return sorted(found, key=lambda job: (job.standing, -job.submitted, job.uid))


def reclaimees(
    evictor: JobView,
    jobs: Iterable[JobView],
    queues: Mapping[str, QueueView],
    total: Resources,
) -> list[JobView]:
    """Running jobs of reclaimable queues that hold more than the evictor's would have after it.

    That is strict, so that two queues never take the same place from each other in turn. A large
    job whose end would leave its queue with less than the evictor's is left alone if it had waited
    longer: else two queues could end each other's large jobs again and again.
    """
    own = queues[evictor.queue]
    after = weighted_share(own, total, charges(minimum(evictor)))
    richer = {
        name: weighted_share(queue, total)
        for name, queue in queues.items()
        if name != own.name and queue.reclaimable and weighted_share(queue, total) > after + _TINY
    }

    def is_left_alone(job: JobView) -> bool:
        left = {name: -amount for name, amount in charges(job.placed).items()}
        is_poorer = weighted_share(queues[job.queue], total, left) < after - _TINY
        return is_poorer and job.gained > evictor.gained

    found = [
        job for job in jobs if job.queue in richer and _is_running(job) and not is_left_alone(job)
    ]
    return sorted(
        found, key=lambda job: (-richer[job.queue], job.standing, -job.submitted, job.uid)
    )


def fewest(
    candidates: Sequence[JobView], is_enough: Callable[[Sequence[JobView]], bool]
) -> tuple[JobView, ...]:
    """The first of the candidates whose end is enough, without those that need not end.

    Nothing if even the end of all is not: nobody is ended in vain.
    """
    chosen: list[JobView] = []
    for job in candidates:
        chosen.append(job)
        if is_enough(chosen):
            break
    else:
        return ()
    for job in reversed(chosen):
        rest = [other for other in chosen if other is not job]
        if is_enough(rest):
            chosen = rest
    return tuple(chosen)


# ---- who may slip in ---------------------------------------------------------------------------


def delays(small: TaskView, node: NodeView, gang: JobView, running: Sequence[TaskView]) -> bool:
    """Whether the small task on this node could ever keep a task of the gang from it.

    Nobody knows when the tasks that ``running`` there end, so every order is looked at.
    """
    first = next(iter(minimum(gang)), None)
    shared = {name for name, amount in small.resources.items() if amount > 0}
    if first is None or not any(first.resources.get(name, 0.0) > 0 for name in shared):
        return False
    if len(running) > _MOST_TO_COMBINE:
        return True
    return any(
        slots(first, add(node.idle, freed)) != slots(first, _less(add(node.idle, freed), small))
        for count in range(len(running) + 1)
        for tasks in combinations(running, count)
        for freed in [add(*(task.resources for task in tasks))]
    )


def crowds(small: JobView, gang: JobView, queue: QueueView) -> bool:
    """Whether the small job takes of the gang's own queue what the gang needs there."""
    if small.queue != gang.queue:
        return False
    wanted, more = charges(minimum(gang)), charges(minimum(small))
    return any(
        wanted.get(name, 0.0) > 0
        and more.get(name, 0.0) > 0
        and queue.allocated.get(name, 0.0) + wanted[name] + more[name] > limit + _TINY
        for name, limit in queue.capacity.items()
    )


def _is_running(job: JobView) -> bool:
    return bool(job.placed) and all(task.status is TaskStatus.RUNNING for task in job.placed)


def _less(idle: Resources, task: TaskView) -> Resources:
    return subtract(idle, task.resources)
