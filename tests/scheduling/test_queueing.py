"""Order, capacity, victims and backfill as pure rules."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_cli.scheduling.model import JobView, QueueView
from dlrover_cli.scheduling.queueing import (
    by_importance,
    crowds,
    delays,
    fewest,
    gained,
    has_room,
    in_turn,
    lacking,
    next_queue,
    preemptees,
    reclaimees,
    slots,
    weighted_share,
)
from tests.scheduling.views import job, node, view


def test_priority_goes_before_age_and_age_before_the_name() -> None:
    jobs = [
        job("young", submitted=2.0),
        job("b", submitted=1.0),
        job("a", submitted=1.0),
        job("urgent", priority=1, submitted=3.0),
    ]

    assert [each.name for each in in_turn(jobs)] == ["urgent", "a", "b", "young"]


def test_the_queue_that_holds_least_for_its_weight_goes_first() -> None:
    queues = [
        QueueView("heavy", weight=3, allocated={"cpu": 4.0}),
        QueueView("light", weight=1, allocated={"cpu": 2.0}),
    ]

    first = {queue.name: job("any", queue=queue.name) for queue in queues}

    assert next_queue(queues, {"cpu": 8.0}, first).name == "heavy"


def test_of_queues_that_hold_the_same_the_one_that_waits_longest_goes_first() -> None:
    queues = [QueueView("a"), QueueView("b")]
    first = {"a": job("young", queue="a", priority=9, submitted=2.0), "b": job("old", queue="b")}

    assert next_queue(queues, {"cpu": 8.0}, first).name == "b"


def test_each_spell_of_waiting_adds_one_to_the_priority() -> None:
    assert [gained(waited, 600.0) for waited in (-5.0, 599.9, 600.0, 6000.0)] == [0, 0, 1, 10]
    assert gained(1e9, None) == 0


def test_waiting_orders_a_job_and_the_older_goes_first_among_equals() -> None:
    jobs = [
        job("urgent", priority=5, submitted=9.0),
        job("patient", gained=6, submitted=2.0),
        job("equal", priority=5, gained=1, submitted=1.0),
        job("owed", submitted=9.0, is_owed_room=True),
    ]

    assert [each.name for each in in_turn(jobs)] == ["owed", "equal", "patient", "urgent"]
    assert [each.name for each in by_importance(jobs)] == ["owed", "equal", "urgent", "patient"]


def test_what_a_job_has_gained_protects_it_and_ends_nobody() -> None:
    aged = job("aged", gained=5, on=["a"])
    young = job("young", on=["a"])

    victims = preemptees(job("urgent", priority=5), [aged, young])
    of_the_aged = preemptees(job("waits", gained=9), [young])

    assert [each.name for each in victims] == ["young"]
    assert of_the_aged == []


def test_a_share_is_that_of_the_scarcest_thing() -> None:
    queue = QueueView("q", allocated={"cpu": 1.0, "gpu": 4.0})

    assert weighted_share(queue, {"cpu": 100.0, "gpu": 8.0}) == 0.5


def test_capacity_counts_agents_and_resources_and_says_which_is_short() -> None:
    queue = QueueView(
        "q", capacity={"agents": 4.0, "gpu": 8.0}, allocated={"agents": 1.0, "gpu": 8.0}
    )

    assert lacking(queue, {"agents": 3.0}) is None
    assert lacking(queue, {"agents": 1.0, "gpu": 1.0}) == (
        "queue q holds 8 of 8 gpu, and the job needs 1"
    )
    assert lacking(queue, {"agents": 4.0}) == ("queue q holds 1 of 4 agents, and the job needs 4")


def test_tenths_of_a_core_add_up() -> None:
    queue = QueueView("q", capacity={"cpu": 0.3}, allocated={"cpu": 0.1 + 0.1})

    assert lacking(queue, {"cpu": 0.1}) is None
    assert slots(job("t", cpu=0.1).tasks[0], {"cpu": 0.3}) == 3


def test_tasks_that_ask_for_nothing_have_room_wherever_there_is_a_node() -> None:
    tasks = job("free", tasks=9, cpu=0.0).tasks

    assert has_room(tasks, [node("a")])
    assert not has_room(tasks, [])


def test_victims_are_of_the_same_queue_and_less_important() -> None:
    evictor = job("evictor", queue="q", priority=5)
    jobs = [
        job("same", queue="q", priority=5, on=["a"]),
        job("other", queue="p", priority=0, on=["a"]),
        job("waiting", queue="q", priority=0),
        job("old", queue="q", priority=1, on=["a"], submitted=1.0),
        job("young", queue="q", priority=1, on=["a"], submitted=2.0),
        job("least", queue="q", priority=0, on=["a"]),
    ]

    assert [each.name for each in preemptees(evictor, jobs)] == ["least", "young", "old"]


def test_two_gangs_of_the_same_size_do_not_take_each_others_place_in_turn() -> None:
    holds = job("holds", tasks=2, queue="a", on=["x", "y"])
    wants = job("wants", tasks=2, queue="b")
    at = view([holds, wants], [node("x"), node("y")], QueueView("a"), QueueView("b"))
    queues = {queue.name: queue for queue in at.queues}

    assert reclaimees(wants, at.jobs, queues, {"cpu": 2.0}) == []


def test_fewest_leaves_out_those_that_need_not_end() -> None:
    small, large = job("small", cpu=1.0), job("large", cpu=4.0)

    def frees_four(chosen: Sequence[JobView]) -> bool:
        return sum(each.tasks[0].resources["cpu"] for each in chosen) >= 4.0

    assert fewest([small, large], frees_four) == (large,)
    assert fewest([small], frees_four) == ()


@pytest.mark.parametrize(
    "cpu, is_delayed",
    [(1.0, False), (2.0, True)],
    ids=["what no task of the gang could use", "what one could use once the running one ends"],
)
def test_a_small_task_delays_a_gang_by_what_could_become_a_place(
    cpu: float, is_delayed: bool
) -> None:
    """Of 7 cores 3 are in use: two places of 3 cores, and one core that nobody can use."""
    running = job("running", cpu=3.0, on=["a"])
    at = view([running], [node("a", cpu=7.0)])

    gang = job("gang", tasks=2, cpu=3.0)
    small = job("small", cpu=cpu).tasks[0]

    assert delays(small, at.nodes[0], gang, running.tasks) is is_delayed


def test_a_small_job_of_another_queue_crowds_nobody() -> None:
    queue = QueueView("q", capacity={"agents": 2.0}, allocated={"agents": 1.0})
    gang = job("gang", tasks=2, queue="q")

    assert crowds(job("small", queue="q"), gang, queue)
    assert not crowds(job("small", queue="p"), gang, queue)


_SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@settings(deadline=None, max_examples=100)
@given(running=_SIZES, small=st.integers(1, 4), gang=st.integers(1, 4), spare=st.integers(0, 4))
def test_what_does_not_delay_leaves_every_place_whoever_ends_first(
    running: list[int], small: int, gang: int, spare: int
) -> None:
    jobs = [job(f"r{index}", cpu=float(cpu), on=["a"]) for index, cpu in enumerate(running)]
    at = view(jobs, [node("a", cpu=float(sum(running) + small + spare))])
    tasks = [each.tasks[0] for each in jobs]
    big = job("gang", cpu=float(gang))

    if delays(job("small", cpu=float(small)).tasks[0], at.nodes[0], big, tasks):
        return
    free = float(small + spare)
    for cpu in [0, *running]:
        assert (free + cpu) // gang == (free + cpu - small) // gang
        free += cpu
