"""The book as a session sees it: runs are jobs of one task, and this machine is the only node."""

from collections.abc import Iterable

from dlrover_cli.admission.book import Book, Entry
from dlrover_cli.scheduling.local_node import this_node
from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    QueueView,
    Resources,
    SessionView,
    TaskStatus,
    TaskView,
    add,
    charges,
)
from dlrover_cli.scheduling.queueing import gained
from dlrover_cli.scheduling.settings import QueueSettings, SchedulingConfig

NAMESPACE = "default"
DEFAULT_QUEUE = "default"


def snapshot(
    book: Book, config_file: str, config: SchedulingConfig, uid: str, now: float
) -> SessionView:
    """The runs of one extender file whose runners are here.

    Runs of other files take room on the node, too, and runs of other hosts in the queues.
    """
    name = this_node({}).name
    held = [entry.resources for entry in book.entries.values() if entry.node == name]
    entries = book.of(config_file)
    jobs = {entry.run_id: job_of(entry, config, now) for entry in entries}
    here = tuple(jobs[entry.run_id] for entry in entries if entry.owner.is_here)
    queues = queues_of(config, jobs.values())
    return SessionView(uid, here, (this_node(add(*held)),), tuple(queues))


def job_of(entry: Entry, config: SchedulingConfig, now: float) -> JobView:
    aging = config.queues.get(entry.queue, QueueSettings()).aging
    phase = JobPhase.ENQUEUED if entry.is_enqueued else JobPhase.PENDING
    return JobView(
        entry.run_id,
        entry.name,
        NAMESPACE,
        entry.queue,
        entry.priority,
        1,
        (task_of(entry),),
        JobPhase.RUNNING if entry.node is not None else phase,
        entry.submitted,
        gained(entry.waited(now), aging),
        entry.is_owed_room,
    )


def task_of(entry: Entry) -> TaskView:
    holds = TaskStatus.RELEASING if entry.is_releasing else TaskStatus.RUNNING
    return TaskView(
        NAMESPACE,
        f"{entry.name}-0",
        f"{entry.run_id}-0",
        entry.run_id,
        entry.resources,
        entry.node,
        TaskStatus.PENDING if entry.node is None else holds,
        entry.priority,
        entry.place,
    )


def queues_of(config: SchedulingConfig, jobs: Iterable[JobView]) -> list[QueueView]:
    """Those of the file; without any, one that has no limit."""
    there = list(jobs)
    if not config.queues:
        return [QueueView(DEFAULT_QUEUE, allocated=_held(DEFAULT_QUEUE, there))]
    return [
        QueueView(name, queue.weight, queue.capacity, queue.reclaimable, _held(name, there))
        for name, queue in config.queues.items()
    ]


def _held(queue: str, jobs: Iterable[JobView]) -> Resources:
    return charges(task for job in jobs if job.queue == queue for task in job.placed)
