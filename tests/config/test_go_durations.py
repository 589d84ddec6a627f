"""Durations as Go's time.ParseDuration has them, errors included."""

import pytest

from dlrover_cli.config.go_durations import parse_go_duration


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("100ms", 0.1),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("+5s", 5.0),
        ("-1.5h", -5400.0),
        ("0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("1us", 1e-6),
        ("1\u00b5s", 1e-6),
        ("1\u03bcs", 1e-6),
        ("3ns", 3e-9),
        ("30s1m", 90.0),  # Go does not mind the order,
        ("1s1s", 2.0),  # nor the same unit twice
        ("0.3333333333333333333h", 1200.0),
        ("9223372036854775807ns", 9223372036.854776),
    ],
)
def test_what_go_reads_is_read_so(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no length of time"),
        ("-", "no length of time"),
        ("5", "no unit after 5"),
        ("1m30", "no unit after 30"),
        ("s", "no number before 's'"),
        (".s", "no number"),
        ("1d", "unit 'd'"),
        ("1S", "unit 'S'"),
        ("1 s", "unit ' s'"),
        ("1s ", "unit 's '"),
        (" 1s", "no number"),
        ("1e3s", "unit 'e'"),
        ("1.2.3s", "no unit after 1.2"),
        ("++1s", "no number before '+'"),
        ("\u0661s", "no number"),
        ("9223372036854775808ns", "longer than Go can count"),
        ("3000000h", "longer than Go can count"),
        ("9" * 5000 + "s", "longer than Go can count"),
    ],
)
def test_what_go_refuses_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^'") as caught:
        parse_go_duration(text)
    assert why in str(caught.value)
