"""Under a steady stream of more important jobs, whoever waits starts at last, and ends."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_cli.scheduling.model import JobView, NodeView
from tests.scheduling.views import job, node
from tests.scheduling.world import AGING, Faulty, World

QUEUES = ("red", "blue")
LASTS = 3
"""Steps that a job of the stream takes."""
NEVER = 600


class Stream:
    """Keeps two fresh jobs waiting in each queue, whatever happens."""

    def __init__(
        self,
        patient: JobView,
        *,
        priority: int,
        nodes: Sequence[NodeView],
        aging: float | None = AGING,
        lasts: int = LASTS,
    ) -> None:
        self.world = World({}, {}, Faulty(random.Random(0), 0.0), nodes, aging)
        self.starts: Counter[str] = Counter()
        self._patient = patient
        self._priority = priority
        self._lasts = lasts
        self._number = 0

    def steps_until_it_ends(self, lasts: int = 5) -> int | None:
        """From when the patient job came; the stream was there before it."""
        for _ in range(10):
            self._step()
        self._add(self._patient, lasts)
        for number in range(NEVER):
            if self._patient.uid not in self.world.jobs:
                return number
            self._step()
        return None

    def _step(self) -> None:
        for queue in QUEUES:
            waiting = [
                each
                for each in self.world.jobs.values()
                if each.queue == queue and not each.placed and each.name != "patient"
            ]
            for _ in range(2 - len(waiting)):
                self._number += 1
                fresh = job(
                    f"{queue}{self._number:04}",
                    queue=queue,
                    priority=self._priority,
                    submitted=float(self._number),
                )
                self._add(fresh, self._lasts)
        decisions = self.world.step()
        self.starts.update(each.name for each in decisions.started)

    def _add(self, each: JobView, steps: int) -> None:
        self.world.jobs[each.uid] = each
        self.world.left[each.uid] = steps


def _patient(tasks: int = 1, *, queue: str = "red") -> JobView:
    return job("patient", tasks=tasks, queue=queue, submitted=10.5)


def _nodes(number: int) -> list[NodeView]:
    return [node(f"n{index}") for index in range(number)]


def test_without_aging_the_stream_would_go_first_for_ever() -> None:
    stream = Stream(_patient(), priority=1, nodes=_nodes(7), aging=None)

    assert stream.steps_until_it_ends() is None
    assert stream.starts["patient"] == 0


@pytest.mark.parametrize("tasks", [1, 4], ids=["one agent", "a gang as large as its queue"])
def test_a_job_starts_once_it_has_waited_for_its_lack_of_priority(tasks: int) -> None:
    priority = 6
    stream = Stream(_patient(tasks), priority=priority, nodes=_nodes(7))

    steps = stream.steps_until_it_ends()

    assert steps is not None
    assert steps >= (priority - 1) * AGING, "priority has to mean something"
    assert stream.starts["patient"] == 1, "nobody takes from it what it has waited for"


@pytest.mark.parametrize("lasts", [1, 3, 5])
def test_queues_that_have_their_shares_take_nothing_from_each_other(lasts: int) -> None:
    """Whoever starts again and again does not end either."""
    stream = Stream(_patient(), priority=0, nodes=_nodes(4), lasts=lasts)

    assert stream.steps_until_it_ends(lasts=60) is not None
    assert stream.starts["patient"] == 1
    assert stream.world.evictions == 0


def _ends_in_bounded_time(tasks: int, nodes: int, priority: int, queue: str, lasts: int) -> None:
    """Whatever the size of the machine: also if the gang needs all of it, and both queues want it.

    It waits for its lack of priority, for those that came before it, and for the room to drain.
    """
    stream = Stream(
        _patient(tasks, queue=queue), priority=priority, nodes=_nodes(nodes), lasts=lasts
    )

    steps = stream.steps_until_it_ends(lasts=30)

    assert steps is not None
    assert steps <= (priority + 1) * AGING + 10 * lasts + 45


_WORLDS = given(
    tasks=st.integers(1, 4),
    nodes=st.integers(4, 9),
    priority=st.integers(0, 8),
    queue=st.sampled_from(QUEUES),
    lasts=st.integers(1, 5),
)
test_every_job_starts_and_ends_in_bounded_time = settings(deadline=None, max_examples=12)(
    _WORLDS(_ends_in_bounded_time)
)
test_every_job_starts_and_ends_whatever_the_numbers = pytest.mark.full(
    settings(deadline=None, max_examples=80)(_WORLDS(_ends_in_bounded_time))
)
