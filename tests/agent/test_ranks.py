"""Ranks follow from what the nodes bring, and from nothing else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.agent.ranks import Hello, agree_on_counters, place
from dlrover_cli.failover.decide import Counters

counters = st.builds(
    Counters,
    attempt=st.integers(0, 50),
    restart_count=st.integers(0, 9),
    generation=st.integers(0, 9),
    node_relaunches=st.integers(0, 9),
)
hellos = st.lists(
    st.builds(
        Hello,
        st.sampled_from(["trainer", "reader", "x"]),
        st.integers(1, 16),
        counters,
        st.dictionaries(st.text(), st.text(), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


@given(hellos)
def test_global_ranks_are_counted_through_without_a_gap(hellos):
    placements = place(hellos)
    ranks = [
        placement.first_global_rank + local_rank
        for hello, placement in zip(hellos, placements, strict=True)
        for local_rank in range(hello.local_world_size)
    ]
    assert ranks == list(range(len(ranks)))
    assert {placement.world_size for placement in placements} == {len(ranks)}


@given(hellos)
def test_role_ranks_are_counted_through_within_each_role(hellos):
    placements = place(hellos)
    for role in {hello.role for hello in hellos}:
        mine = [
            (hello, placement)
            for hello, placement in zip(hellos, placements, strict=True)
            if hello.role == role
        ]
        ranks = [
            placement.first_role_rank + local_rank
            for hello, placement in mine
            for local_rank in range(hello.local_world_size)
        ]
        assert ranks == list(range(len(ranks)))
        assert {placement.role_world_size for _, placement in mine} == {len(ranks)}


@given(hellos)
def test_the_numbers_are_those_of_somebody_who_has_been_in_longest(hellos):
    agreed = agree_on_counters(hellos)
    assert agreed in [hello.counters for hello in hellos]
    assert agreed.attempt == max(hello.counters.attempt for hello in hellos)


@given(hellos)
def test_a_hello_survives_the_journey_through_a_store(hellos):
    for hello in hellos:
        assert Hello.from_json(json.loads(json.dumps(hello.to_json()))) == hello


def test_a_newcomer_does_not_set_the_job_back():
    old = Counters(attempt=3, restart_count=2, generation=1)
    assert agree_on_counters([Hello("x", 1, Counters()), Hello("x", 1, old)]) == old
