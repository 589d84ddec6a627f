"""Times as a column of a list has them."""

import pytest

from dlrover_cli import words


@pytest.mark.parametrize(
    "seconds, text",
    [
        (-1, "0.0s"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (61, "1m 1s"),
        (3599.6, "1h"),
        (7500, "2h 5m"),
        (86400, "1d"),
        (100_000, "1d 3h"),
        (30 * 86400 + 7200, "30d"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    "seconds, text", [(-1, "0ms"), (0.0404, "40ms"), (0.94, "940ms"), (0.96, "1.0s"), (61, "1m 1s")]
)
def test_a_span_may_be_short(seconds: float, text: str) -> None:
    assert words.span(seconds) == text


@pytest.mark.parametrize(
    "ago, text", [(0, "0s"), (5.4, "5s"), (65, "1m"), (7500, "2h"), (-3, "0s")]
)
def test_an_age_has_one_unit(ago: float, text: str) -> None:
    assert words.age(1000.0, 1000.0 + ago) == text


def test_numbers_have_their_nouns() -> None:
    assert [words.counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_what_nobody_would_read_to_its_end_is_cut_with_its_length() -> None:
    assert words.bounded("x" * 2000) == "x" * 2000
    assert words.bounded("x" * 2001) == f"{'x' * 2000}… (2,001 characters in all)"
