"""The wait before a restart: it grows while attempts die young and fruitless, and not otherwise."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dlrover_cli.failover.backoff import LONGEST_WAIT, SHORT_LIFE, backoff

YOUNG = {"lifetime": 0.04, "steps": 0}


def waits(count: int, **facts: object) -> list[float]:
    """The waits after so many attempts alike."""
    found, in_a_row = [], 0
    for _ in range(count):
        step = backoff(fruitless_before=in_a_row, **(YOUNG | facts))  # type: ignore[arg-type]
        in_a_row = step.fruitless_in_a_row
        found.append(step.seconds)
    return found


def test_the_first_restart_is_immediate_and_each_later_one_waits_twice_as_long() -> None:
    assert waits(6) == [0, 0.5, 1, 2, 4, 8]


def test_no_wait_is_longer_than_half_a_minute() -> None:
    assert waits(10)[-4:] == [16, 30, 30, 30]


def test_an_attempt_whose_progress_nobody_counted_is_not_trusted_to_have_made_any() -> None:
    assert waits(3, steps=None) == [0, 0.5, 1]


def test_a_single_step_is_progress() -> None:
    assert waits(3, steps=1) == [0, 0, 0]


@pytest.mark.parametrize("steps", [None, 0])
def test_an_attempt_that_lived_long_enough_is_restarted_at_once(steps: int | None) -> None:
    assert waits(3, lifetime=SHORT_LIFE, steps=steps) == [0, 0, 0]


def test_progress_makes_the_wait_start_over() -> None:
    good = backoff(lifetime=3600, steps=500, fruitless_before=6)
    bad = backoff(**YOUNG, fruitless_before=good.fruitless_in_a_row)
    worse = backoff(**YOUNG, fruitless_before=bad.fruitless_in_a_row)
    assert (good.seconds, bad.seconds, worse.seconds) == (0, 0, 0.5)


@pytest.mark.parametrize("asked", [0.0, 0.1, 600.0])
def test_the_wait_that_an_adviser_asks_for_wins_over_ours(asked: float) -> None:
    assert backoff(**YOUNG, fruitless_before=5, asked=asked).seconds == asked
    assert backoff(lifetime=100, steps=7, fruitless_before=0, asked=asked).seconds == asked


def test_fruitless_attempts_are_counted_also_where_an_adviser_chose_the_wait() -> None:
    chosen = backoff(**YOUNG, fruitless_before=3, asked=0)
    assert backoff(**YOUNG, fruitless_before=chosen.fruitless_in_a_row).seconds == 4


@given(
    lifetime=st.floats(0, 1e9),
    steps=st.none() | st.integers(0, 10**12),
    before=st.integers(0, 10**9),
)
def test_a_wait_is_never_negative_nor_longer_than_half_a_minute(
    lifetime: float, steps: int | None, before: int
) -> None:
    answer = backoff(lifetime=lifetime, steps=steps, fruitless_before=before)
    assert 0 <= answer.seconds <= LONGEST_WAIT
    assert (answer.seconds == 0) == (answer.fruitless_in_a_row < 2)
