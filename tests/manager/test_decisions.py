"""What the end of an agent means, and where agents are placed: tables."""

from typing import Any

import pytest

from dlrover_cli.failover.decide import Action
from dlrover_cli.manager.afresh import who_asks
from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.endings import LastWords, Meaning, job_exit_code, meaning_of
from dlrover_cli.manager.placing import Demand, missing, to_place
from dlrover_cli.manager.roster import Seat


@pytest.mark.parametrize(
    "code, words, meaning",
    [
        (0, LastWords(), Meaning.SUCCESS),
        (0, None, Meaning.SUCCESS),
        (7, LastWords(Action.FAIL), Meaning.FAILURE),
        (139, LastWords(Action.FAIL), Meaning.FAILURE),
        (82, LastWords(Action.ABORT), Meaning.FAILURE),
        (81, LastWords(Action.REPLACE_NODE), Meaning.REPLACE),
        (81, None, Meaning.REPLACE),
        (2, None, Meaning.FAILURE),
        (80, LastWords(), Meaning.FAILURE),
        (-9, None, Meaning.LOST),
        (137, None, Meaning.LOST),
        (143, LastWords(), Meaning.LOST),
        (None, None, Meaning.LOST),
    ],
)
def test_what_an_end_means(code: int | None, words: LastWords | None, meaning: Meaning) -> None:
    assert meaning_of(code, words) is meaning


@pytest.mark.parametrize("code, shown", [(7, 7), (-9, 137), (None, 1), (82, 82)])
def test_the_jobs_exit_code(code: int | None, shown: int) -> None:
    assert job_exit_code(code) == shown


def _seat(agent: str, **known: Any) -> Seat:
    seat = Seat(agent, Node(agent, agent, ""), 0.0)
    for name, value in known.items():
        setattr(seat, name, value)
    return seat


@pytest.mark.parametrize(
    "others, now, asking",
    [
        ([], 1.0, ["a"]),
        ([_seat("b", attempt=3)], 1.0, []),
        ([_seat("b", attempt=3)], 46.0, ["a"]),
        ([_seat("b", attempt=3, asks_since=0.5)], 1.0, ["a", "b"]),
        ([_seat("b", attempt=3, is_fenced=True)], 1.0, ["a"]),
        ([_seat("b", attempt=2)], 1.0, ["a"]),
        ([_seat("b")], 1.0, ["a"]),
    ],
    ids=[
        *("alone", "one has not come to it", "and does not", "all ask", "one is told to go"),
        *("one was not in the round", "one has just come"),
    ],
)
def test_who_asks_for_a_place_again(others: list[Seat], now: float, asking: list[str]) -> None:
    """All that were in the round have to be through with their workers."""
    seats = [_seat("a", attempt=3, asks_since=0.2), *others]

    assert [seat.agent for seat in who_asks(seats, 3, now, 45.0)] == asking


def nodes(*names: str, **resources: float) -> list[Node]:
    return [Node(name, name, "127.0.0.1", resources) for name in names]


def placed(
    there: list[Node],
    least: int,
    most: int,
    excluded: str = "",
    occupied: str = "",
    doubtful: str = "",
    **wanted: float,
) -> str:
    demand = Demand(least, most, wanted)
    return "".join(
        n.id for n in to_place(there, demand, set(excluded), set(occupied), set(doubtful))
    )


def test_a_job_starts_once_its_minimum_can_be_had() -> None:
    assert placed(nodes("a"), 2, 3) == ""
    assert placed(nodes("a", "b"), 2, 3) == "ab"


def test_nodes_beyond_the_maximum_are_spares() -> None:
    assert placed(nodes("a", "b", "c"), 1, 2) == "ab"


def test_whoever_is_lost_is_replaced_by_a_spare_that_is_not_excluded() -> None:
    assert placed(nodes("a", "b", "c"), 2, 2, excluded="b", occupied="a") == "c"


def test_where_an_agent_was_lost_is_the_last_choice_but_one() -> None:
    assert placed(nodes("a", "b", "c"), 2, 2, occupied="a", doubtful="b") == "c"
    assert placed(nodes("a", "b"), 2, 2, occupied="a", doubtful="b") == "b"


def test_a_running_job_takes_every_node_that_comes() -> None:
    assert placed(nodes("a", "b"), 1, 3, occupied="a") == "b"


def test_a_node_that_offers_too_little_is_none() -> None:
    there = [*nodes("a", GPU=4), *nodes("b", GPU=8)]
    assert placed(there, 1, 2, GPU=8.0) == "b"
    assert placed(there, 2, 2, GPU=8.0) == ""
    assert missing(there, Demand(2, 2, {"GPU": 8.0}), {"b"}) == (
        "0 of 2 nodes with GPU=8 can be had; 1 excluded"
    )
