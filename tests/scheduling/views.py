"""Jobs, nodes and queues for tests, and a decider that writes down what it was asked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    NodeView,
    QueueView,
    SessionView,
    TaskStatus,
    TaskView,
    charges,
)
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import HookFailed, Indifferent, Refusal, Victims, Vote
from dlrover_cli.scheduling.session import Decisions, hold_session

ALL = ("reclaim", "allocate", "backfill", "preempt")


def job(
    name: str,
    *,
    tasks: int = 1,
    least: int | None = None,
    queue: str = "default",
    priority: int = 0,
    submitted: float = 0.0,
    gained: int = 0,
    is_owed_room: bool = False,
    cpu: float = 1.0,
    on: Sequence[str] = (),
    **resources: float,
) -> JobView:
    """A job that waits, or one that runs on the nodes ``on``."""
    asked = {"cpu": cpu, **resources} if cpu else resources
    made = tuple(
        TaskView("default", f"{name}-{index}", f"{name}-{index}", name, asked, priority=priority)
        for index in range(tasks)
    )
    running = tuple(
        replace(task, node=node, status=TaskStatus.RUNNING)
        for task, node in zip(made, on, strict=False)
    )
    return JobView(
        name,
        name,
        "default",
        queue,
        priority,
        tasks if least is None else least,
        (*running, *made[len(running) :]),
        JobPhase.RUNNING if running else JobPhase.PENDING,
        submitted,
        gained,
        is_owed_room,
    )


def node(name: str, cpu: float = 1.0, **more: float) -> NodeView:
    return NodeView(name, {"cpu": cpu, **more})


def view(
    jobs: Sequence[JobView], nodes: Sequence[NodeView], *queues: QueueView, uid: str = "s"
) -> SessionView:
    """With what running tasks hold counted to their nodes and queues."""
    held = [task for each in jobs for task in each.placed]
    used = {each.name: charges([task for task in held if task.node == each.name]) for each in nodes}
    for amounts in used.values():
        amounts.pop("agents", None)
    allocated = {
        queue.name: charges(
            task for each in jobs if each.queue == queue.name for task in each.placed
        )
        for queue in queues or (QueueView("default"),)
    }
    return SessionView(
        uid,
        tuple(jobs),
        tuple(replace(each, used=used[each.name]) for each in nodes),
        tuple(
            replace(queue, allocated=allocated[queue.name])
            for queue in queues or (QueueView("default"),)
        ),
    )


def hold(
    at: SessionView,
    *extenders: Indifferent,
    actions: Sequence[str] = ALL,
    released: Sequence[TaskView] = (),
) -> Decisions:
    return hold_session(at, Panel(built_ins(), extenders), actions, released=released)


class Witness(Indifferent):
    """Writes down what it is asked; answers as it was told to."""

    def __init__(
        self,
        *,
        refuse: Mapping[str, str] | None = None,
        scores: Mapping[str, float] | None = None,
        enqueueable: Vote = Vote.ABSTAIN,
        overused: Sequence[str] = (),
        victims: Sequence[str] | None = None,
        ready: bool = True,
        refuse_allocation: Sequence[str] = (),
        fail: Sequence[str] = (),
    ) -> None:
        self.calls: list[tuple[str, str]] = []
        self._refuse = refuse or {}
        self._scores = scores or {}
        self._enqueueable = enqueueable
        self._overused = overused
        self._victims = victims
        self._ready = ready
        self._refuse_allocation = refuse_allocation
        self._fail = fail

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    def balance(self) -> int:
        return self.verbs.count("allocated") - self.verbs.count("deallocated")

    def _note(self, verb: str, what: str) -> None:
        self.calls.append((verb, what))
        if verb in self._fail:
            raise HookFailed(f"the witness cannot answer {verb}")

    def session_open(self, view: SessionView) -> None:
        self._note("session_open", view.uid)

    def session_close(self, view: SessionView) -> None:
        self._note("session_close", view.uid)

    def job_enqueueable(self, job: JobView) -> Vote:
        self._note("job_enqueueable", job.name)
        return self._enqueueable

    def job_enqueued(self, job: JobView) -> None:
        self._note("job_enqueued", job.name)

    def queue_overused(self, queue: QueueView) -> bool:
        self._note("queue_overused", queue.name)
        return queue.name in self._overused

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        self._note("predicate", f"{task.name} {node.name}")
        reason = self._refuse.get(node.name)
        return None if reason is None else Refusal(reason, is_final=True)

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        self._note("prioritize", " ".join(node.name for node in nodes))
        return self._scores

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        self._note("preemptable", " ".join(task.name for task in evictees))
        return None if self._victims is None else Victims(frozenset(self._victims))

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        self._note("reclaimable", " ".join(task.name for task in evictees))
        return None if self._victims is None else Victims(frozenset(self._victims))

    def job_ready(self, job: JobView) -> bool:
        self._note("job_ready", job.name)
        return self._ready

    def allocated(self, task: TaskView) -> Refusal | None:
        self._note("allocated", f"{task.name} {task.node}")
        return Refusal("no") if task.name in self._refuse_allocation else None

    def deallocated(self, task: TaskView) -> None:
        self._note("deallocated", f"{task.name} {task.node}")
