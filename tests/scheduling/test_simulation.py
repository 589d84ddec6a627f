"""A hundred jobs through two queues, with preemption and faults: nothing is exceeded or lost."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

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
from dlrover_cli.scheduling.queueing import in_turn
from dlrover_cli.scheduling.session import Decisions, hold_session
from tests.scheduling.views import ALL, job, node, view

CAPACITY = 4
NODES = [node(f"n{number}") for number in range(7)]


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
    released: list[TaskView] = field(default_factory=list)
    evictions: int = 0

    def step(self) -> Decisions:
        self._pass_time()
        before = list(self.jobs.values())
        queues = [QueueView(name, capacity={"agents": CAPACITY}) for name in ("red", "blue")]
        at = view(before, NODES, *queues)
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
    return replace(each, tasks=tuple(tasks), phase=JobPhase.RUNNING)


def _waiting(each: JobView) -> JobView:
    tasks = (replace(task, node=None, status=TaskStatus.PENDING) for task in each.tasks)
    return replace(each, tasks=tuple(tasks), phase=JobPhase.PENDING)


def _world(seed: int, often: float) -> World:
    chance = random.Random(seed)
    jobs = [
        job(
            f"job{number:03}",
            tasks=chance.choice((1, 1, 1, 2, 3)),
            queue=chance.choice(("red", "blue")),
            priority=chance.choice((0, 0, 5, 9)),
            submitted=float(number),
        )
        for number in range(100)
    ]
    left = {each.uid: chance.randint(1, 6) for each in jobs}
    return World({each.uid: each for each in jobs}, left, Faulty(chance, often))


def _run(world: World, arrive: Callable[[int], bool]) -> None:
    """Jobs come by and by; after all have come, all end within a bounded number of sessions."""
    coming = list(world.jobs.values())
    world.jobs = {}
    for number in range(5000):
        while coming and arrive(number):
            each = coming.pop(0)
            world.jobs[each.uid] = each
        world.step()
        if not coming and not world.jobs:
            break
    assert not world.jobs, "these never ended"
    assert not coming


@pytest.mark.parametrize("often", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_jobs_all_end_and_nothing_is_exceeded(seed: int, often: float) -> None:
    world = _world(seed, often)
    chance = random.Random(seed + 1000)

    _run(world, lambda number: chance.random() < 0.4)

    world.step()
    assert not +world.plugin.held
    assert world.evictions > 0, "the numbers give nobody a reason to preempt"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3, 60))
def test_a_hundred_jobs_all_end_whatever_the_numbers(seed: int) -> None:
    world = _world(seed, (seed % 5) / 40)
    chance = random.Random(seed + 1000)

    _run(world, lambda number: chance.random() < 0.5)

    world.step()
    assert not +world.plugin.held
