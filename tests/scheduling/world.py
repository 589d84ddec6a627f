"""A make-believe world of jobs, two queues and nodes, in which a session is held at each step."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    NodeView,
    QueueView,
    TaskStatus,
    TaskView,
)
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import HookFailed, Indifferent, Refusal, Victims, Vote
from dlrover_cli.scheduling.queueing import gained, in_turn
from dlrover_cli.scheduling.session import Decisions, hold_session
from tests.scheduling.views import ALL, node, view

CAPACITY = 4
AGING = 10.0
"""Steps of waiting that are worth one point of priority."""
NODES = tuple(node(f"n{number}") for number in range(7))


class Faulty(Indifferent):
    """Fails now and then, and counts allocations."""

    def __init__(self, chance: random.Random, often: float) -> None:
        self._chance = chance
        self._often = often
        self.has_failed = False
        self.held: Counter[str] = Counter()

    def _answer(self) -> None:
        if self._chance.random() < self._often:
            self.has_failed = True
            raise HookFailed("out of order")

    def session_open(self, view: object) -> None:
        self.has_failed = False
        self._answer()

    def job_enqueueable(self, job: JobView) -> Vote:
        self._answer()
        return Vote.PERMIT

    def queue_overused(self, queue: QueueView) -> bool:
        self._answer()
        return False

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        self._answer()
        return None

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        self._answer()
        return {}

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        self._answer()
        return None

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        self._answer()
        return None

    def job_ready(self, job: JobView) -> bool:
        self._answer()
        return True

    def allocated(self, task: TaskView) -> Refusal | None:
        self.held[task.uid] += 1
        assert self.held[task.uid] == 1, "allocated twice"
        self._answer()
        return None

    def deallocated(self, task: TaskView) -> None:
        self.held[task.uid] -= 1
        assert self.held[task.uid] == 0, "given back twice"
        self._answer()


@dataclass
class World:
    """Jobs that run for some steps; one that is told to end does so a step later, and waits."""

    jobs: dict[str, JobView]
    left: dict[str, int]
    plugin: Faulty
    nodes: Sequence[NodeView] = NODES
    aging: float | None = AGING
    waited: Counter[str] = field(default_factory=Counter)
    released: list[TaskView] = field(default_factory=list)
    evictions: int = 0

    def step(self) -> Decisions:
        self._pass_time()
        before = list(self.jobs.values())
        queues = [QueueView(name, capacity={"agents": CAPACITY}) for name in ("red", "blue")]
        at = view(before, self.nodes, *queues)
        released, self.released = self.released, []
        decisions = hold_session(at, Panel(built_ins(), [self.plugin]), ALL, released=released)
        self._apply(decisions)
        if not self.plugin.has_failed:
            _check_order(before, decisions)
        self._check_room()
        return decisions

    def _pass_time(self) -> None:
        for each in list(self.jobs.values()):
            if not each.placed:
                self.waited[each.uid] += 1
                age = gained(self.waited[each.uid], self.aging)
                self.jobs[each.uid] = replace(each, gained=age)
                continue
            self.left[each.uid] -= 1
            is_evicted = each.placed[0].status is TaskStatus.RELEASING
            if self.left[each.uid] <= 0 or is_evicted:
                self.released += each.placed
                self.jobs[each.uid] = _waiting(each)
            if self.left[each.uid] <= 0:
                del self.jobs[each.uid]

    def _apply(self, decisions: Decisions) -> None:
        for uid in decisions.enqueued:
            self.jobs[uid] = replace(self.jobs[uid], phase=JobPhase.ENQUEUED)
        for each in decisions.started:
            self.jobs[each.uid] = _with(each, TaskStatus.RUNNING)
        for eviction in decisions.evictions:
            self.evictions += 1
            victim = self.jobs[eviction.job.uid]
            assert victim.placed, "who holds nothing cannot make room"
            self.jobs[victim.uid] = _with(victim, TaskStatus.RELEASING)
            evictor = self.jobs[eviction.evictor.uid]
            assert victim.standing < evictor.priority or victim.queue != evictor.queue
            self.jobs[evictor.uid] = replace(evictor, is_owed_room=True)

    def _check_room(self) -> None:
        placed = [(each.queue, task) for each in self.jobs.values() for task in each.placed]
        assert all(count <= CAPACITY for count in Counter(name for name, _ in placed).values())
        assert all(count <= 1 for count in Counter(task.node for _, task in placed).values())
        held = {uid for uid, count in self.plugin.held.items() if count}
        assert held == {task.uid for _, task in placed}


def _check_order(before: Sequence[JobView], decisions: Decisions) -> None:
    """Where nobody failed, and nodes were not short, a queue's jobs start from the front."""
    started = {each.uid for each in decisions.started}
    waited_for_nodes = any("free" in why for why in (decisions.waiting or {}).values())
    for queue in () if waited_for_nodes else ("red", "blue"):
        line = in_turn(each for each in before if each.queue == queue and not each.placed)
        taken = [each.uid in started for each in line]
        assert taken == sorted(taken, reverse=True), f"overtaken in {queue}: {line}"


def _with(each: JobView, status: TaskStatus) -> JobView:
    tasks = (replace(task, status=status) if task.node else task for task in each.tasks)
    return replace(each, tasks=tuple(tasks), phase=JobPhase.RUNNING, is_owed_room=False)


def _waiting(each: JobView) -> JobView:
    tasks = (replace(task, node=None, status=TaskStatus.PENDING) for task in each.tasks)
    return replace(each, tasks=tuple(tasks), phase=JobPhase.PENDING)
