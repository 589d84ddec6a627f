"""The state of a session while it decides: who holds which node, and what is left of everything."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    NodeView,
    QueueView,
    Resources,
    SessionView,
    TaskStatus,
    TaskView,
    add,
    subtract,
)
from dlrover_cli.scheduling.queueing import fits


class Board:
    """The values of a view, each replaced as the session goes on."""

    def __init__(
        self, jobs: Iterable[JobView], nodes: Iterable[NodeView], queues: Iterable[QueueView]
    ) -> None:
        self.jobs = {job.uid: job for job in jobs}
        self.nodes = {node.name: node for node in nodes}
        self.queues = {queue.name: queue for queue in queues}

    def view(self, uid: str) -> SessionView:
        return SessionView(
            uid, tuple(self.jobs.values()), tuple(self.nodes.values()), tuple(self.queues.values())
        )

    def set_phase(self, job: JobView, phase: JobPhase) -> JobView:
        self.jobs[job.uid] = replace(self.jobs[job.uid], phase=phase)
        return self.jobs[job.uid]

    def place(self, task: TaskView) -> None:
        """The task takes what it asks for from its node and its queue."""
        assert task.node is not None
        self._charge(task, add)
        self._put(task)

    def take_back(self, task: TaskView) -> None:
        """The task has no node any more."""
        self._charge(task, subtract)
        self._put(replace(task, node=None, status=TaskStatus.PENDING, place=""))

    def tell_to_end(self, job: JobView) -> None:
        """Its tasks are about to go, and hold what they have until then."""
        for task in job.placed:
            self._put(replace(task, status=TaskStatus.RELEASING))

    def tasks_on(self, node: str) -> list[TaskView]:
        return [task for job in self.jobs.values() for task in job.tasks if task.node == node]

    def later(self) -> "Board":
        """As it will be once all that were told to end have ended."""
        board = Board(self.jobs.values(), self.nodes.values(), self.queues.values())
        board.end(job for job in self.jobs.values())
        return board

    def without(self, jobs: Sequence[JobView]) -> "Board":
        """As it would be if these ended."""
        board = Board(self.jobs.values(), self.nodes.values(), self.queues.values())
        for job in jobs:
            board.tell_to_end(job)
        board.end(board.jobs[job.uid] for job in jobs)
        return board

    def end(self, jobs: Iterable[JobView]) -> None:
        """Let those tasks go that were told to."""
        for job in list(jobs):
            for task in job.placed:
                if task.status is TaskStatus.RELEASING:
                    self.take_back(task)

    def promise(self, tasks: Sequence[TaskView], nodes: Sequence[str]) -> None:
        """Let the tasks have the first room that there is, so that nobody else counts on it."""
        for task in tasks:
            room = next((name for name in nodes if fits(task, self.nodes[name].idle)), None)
            if room is not None:
                self.place(replace(task, node=room))

    def _charge(
        self, task: TaskView, change: Callable[[Resources, Resources], dict[str, float]]
    ) -> None:
        assert task.node is not None
        node = self.nodes.get(task.node)
        if node is not None:  # it may be gone, and its task not yet
            self.nodes[node.name] = replace(node, used=change(node.used, task.resources))
        queue = self.queues[self.jobs[task.job].queue]
        self.queues[queue.name] = replace(queue, allocated=change(queue.allocated, task.charge))

    def _put(self, task: TaskView) -> None:
        job = self.jobs[task.job]
        tasks = tuple(task if each.uid == task.uid else each for each in job.tasks)
        self.jobs[job.uid] = replace(job, tasks=tasks)
