"""A hundred jobs through two queues, with preemption and faults: nothing is exceeded or lost."""

import random
from collections.abc import Callable

import pytest

from tests.scheduling.views import job
from tests.scheduling.world import Faulty, World


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
