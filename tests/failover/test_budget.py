"""`--restart_budget_reset`: what can be written, and when the budget is full again."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError
from dlrover_cli.failover.budget import (
    BudgetReset,
    Progress,
    earned,
    parse_budget_reset,
    refilled,
)
from dlrover_cli.failover.decide import Counters

FILE = Source(SourceKind.FILE, "dlrover.toml:restart_budget_reset")


@pytest.mark.parametrize(
    "text, reset",
    [
        ("500 steps", BudgetReset(steps=500)),
        ("1 step", BudgetReset(steps=1)),
        ("500steps", BudgetReset(steps=500)),
        (" 500  steps ", BudgetReset(steps=500)),
        ("3600s", BudgetReset(seconds=3600)),
        ("3600 seconds", BudgetReset(seconds=3600)),
        ("90m", BudgetReset(seconds=5400)),
        ("90 min", BudgetReset(seconds=5400)),
        ("1h", BudgetReset(seconds=3600)),
        ("1.5 hours", BudgetReset(seconds=5400)),
        ("2d", BudgetReset(seconds=172800)),
    ],
)
def test_progress_is_a_number_of_steps_or_a_time(text: str, reset: BudgetReset) -> None:
    assert parse_budget_reset(text) == reset


@pytest.mark.parametrize("text", ["", "  "])
def test_nothing_means_that_the_budget_is_never_refilled(text: str) -> None:
    assert parse_budget_reset(text) is None
    assert not earned(None, Progress(steps=10**9, seconds=10**9))


@pytest.mark.parametrize(
    "text, what",
    [
        ("500", "does not say what 500 counts: steps or seconds"),
        ("0 steps", "needs more than nothing, or no budget would ever be spent"),
        ("0s", "needs more than nothing, or no budget would ever be spent"),
        ("-5 steps", "takes a number of steps or a time, not '-5 steps'"),
        ("five steps", "takes a number of steps or a time, not 'five steps'"),
        ("1.5 steps", "takes a number of steps or a time, not '1.5 steps'"),
        ("1 week", "takes a number of steps or a time, not '1 week'"),
        ("8d", "takes 0 seconds to 7 days, not 691200 seconds"),
        ("infs", "takes a number of steps or a time, not 'infs'"),
        ("²s", "takes a number of steps or a time, not '²s'"),
    ],
)
def test_anything_else_is_refused_with_an_example(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_budget_reset(text)
    assert caught.value.message == f"--restart-budget-reset {what}."
    assert caught.value.setting == "restart_budget_reset"
    assert caught.value.hint is not None
    assert "steps' or --restart-budget-reset=1h" in caught.value.hint


def test_a_complaint_names_the_place_that_the_value_came_from() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_budget_reset("500", FILE)
    assert caught.value.message.startswith("restart_budget_reset in dlrover.toml does not say")
    assert caught.value.hint == (
        'Write restart_budget_reset = "500 steps" or restart_budget_reset = "1h"'
    )


@pytest.mark.parametrize(
    "reset, steps, seconds, full",
    [
        ("500 steps", 500, 1.0, True),
        ("500 steps", 499, 1e6, False),
        ("500 steps", None, 1e6, False),
        ("1h", 1, 3600.0, True),
        ("1h", 10**6, 3599.0, False),
        ("1h", None, 3600.0, True),
        ("1h", 0, 1e6, False),
    ],
)
def test_the_budget_is_full_again_after_as_much_progress_as_was_asked_for(
    reset: str, steps: int | None, seconds: float, full: bool
) -> None:
    assert earned(parse_budget_reset(reset), Progress(steps, seconds)) is full


def test_a_refill_gives_back_restarts_and_nothing_else() -> None:
    spent = Counters(attempt=9, restart_count=3, generation=1, node_relaunches=2)
    reset = BudgetReset(steps=10)
    assert refilled(spent, reset, Progress(10, 5.0)) == Counters(
        attempt=9, restart_count=0, generation=1, node_relaunches=2
    )
    assert refilled(spent, reset, Progress(9, 5.0)) == spent


@given(
    needed=st.integers(1, 1000),
    attempts=st.lists(st.integers(0, 999), max_size=50),
    allowed=st.integers(0, 5),
)
def test_a_job_that_never_gets_that_far_ends_after_as_many_restarts_as_without(
    needed: int, attempts: list[int], allowed: int
) -> None:
    """Whatever the attempts came to, no more than `allowed` restarts lie between two refills."""
    counters, since_refill = Counters(), 0
    for steps in attempts:
        progress = Progress(steps, 1.0)
        if earned(BudgetReset(steps=needed), progress):
            since_refill = 0
        counters = refilled(counters, BudgetReset(steps=needed), progress)
        assert counters.restart_count == since_refill
        if counters.restart_count >= allowed:
            return
        since_refill += 1
        counters = Counters(attempt=counters.attempt + 1, restart_count=counters.restart_count + 1)
