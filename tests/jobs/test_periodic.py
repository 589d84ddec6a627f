"""When periodic jobs are due, also where the clocks change."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.contracts.jobs import PeriodicConfig
from dlrover_cli.jobs.periodic import BadPeriodicConfig, Schedule, parse_periodic

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Every test begins in UTC and may go elsewhere."""

    def go_to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    go_to("UTC")
    yield go_to
    monkeypatch.undo()
    time.tzset()


def cron(expression: str, start_date: str | None = None) -> Schedule:
    return parse_periodic(PeriodicConfig(cron=expression, start_date=start_date))


def local(*parts: int, fold: int = 0) -> float:
    return datetime(*parts, fold=fold).timestamp()  # type: ignore[arg-type, misc]


def in_words(moments: list[float]) -> list[str]:
    return [f"{datetime.fromtimestamp(each).astimezone():%d %H:%M %z}" for each in moments]


def following(schedule: Schedule, after: float, count: int) -> list[str]:
    moments = [schedule.next(after)]
    while len(moments) < count:
        moments.append(schedule.next(moments[-1]))
    return in_words(moments)


@pytest.mark.parametrize(
    "interval, seconds",
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1d 2h", 93600),
        ("500ms", 0.5),
        ("1.5h", 5400),
        (45, 45),
        (0.5, 0.5),
        ("0,1,30,0", 5400),
        ("1, 0, 0, 1", 86401),
        ("90d", 90 * 86400),
    ],
)
def test_an_interval_is_so_long(interval: str | float, seconds: float) -> None:
    schedule = parse_periodic(PeriodicConfig(interval=interval))
    assert schedule.first(NOON) == NOON
    assert schedule.next(NOON) == NOON + seconds


@pytest.mark.parametrize(
    "config, sentence",
    [
        (PeriodicConfig(), "periodic_config has neither interval nor cron"),
        (PeriodicConfig(interval=5, cron="* * * * *"), "has both interval and cron"),
        (PeriodicConfig(interval=0), "interval takes 0.1 seconds or more, not 0"),
        (PeriodicConfig(interval="10ms"), "interval takes 0.1 seconds or more, not 0.01"),
        (PeriodicConfig(interval="0,0,0,0"), "interval takes 0.1 seconds or more, not 0"),
        (PeriodicConfig(interval=-5), "interval takes 0 seconds to 366 days, not -5 seconds"),
        (PeriodicConfig(interval=float("inf")), "interval takes 0 seconds to 366 days"),
        (PeriodicConfig(interval=float("nan")), "interval takes 0 seconds to 366 days"),
        (PeriodicConfig(interval="400d"), "interval takes 0 seconds to 366 days"),
        (PeriodicConfig(interval=10**400), "interval int too large"),
        (PeriodicConfig(interval=True), "interval takes a time, not a truth value"),
        (PeriodicConfig(interval=[1]), "interval takes a time, not a list"),  # type: ignore[arg-type]
        (PeriodicConfig(interval="90"), "interval takes a number and its unit"),
        (PeriodicConfig(interval="30m1h"), "interval takes a number and its unit"),
        (PeriodicConfig(interval="1,2,3"), "takes four numbers, days,hours,minutes,seconds"),
        (PeriodicConfig(interval="1,2,3,-4"), "takes four numbers, days,hours,minutes,seconds"),
        (PeriodicConfig(cron=""), "cron takes five fields"),
        (PeriodicConfig(cron="* * * *"), "cron takes five fields"),
        (PeriodicConfig(cron="* * * * * *"), "cron takes five fields"),
        (PeriodicConfig(cron="@daily"), "cron takes five fields"),
        (PeriodicConfig(cron=5), "cron takes five fields"),  # type: ignore[arg-type]
        (PeriodicConfig(cron="* 24 * * *"), "cron cannot be '* 24 * * *': bad hour"),
        (PeriodicConfig(cron="* * 0 * *"), "bad day-of-month"),
        (PeriodicConfig(cron="* * * * MOO"), "bad day-of-week"),
        (PeriodicConfig(cron="*/0 * * * *"), "bad minute"),
        (PeriodicConfig(cron="0 0 31 2 *"), "bad day-of-month"),
        (PeriodicConfig(cron="0 0 31 2,4 */8"), "bad day-of-month"),
        (PeriodicConfig(interval=5, start_date="tomorrow"), "start_date takes a date and time"),
        (PeriodicConfig(interval=5, start_date="2030-02-30"), "start_date takes a date and time"),
        (PeriodicConfig(interval=5, start_date=5), "start_date takes a text"),  # type: ignore[arg-type]
    ],
)
def test_what_names_no_times_is_refused(config: PeriodicConfig, sentence: str) -> None:
    with pytest.raises(BadPeriodicConfig) as caught:
        parse_periodic(config)
    assert sentence in caught.value.message
    assert caught.value.message.startswith(f"{caught.value.key} ")
    assert caught.value.hint


def test_nothing_starts_before_the_start_date() -> None:
    config = PeriodicConfig(interval="1h", start_date="2030-01-31T14:30:00+01:00")
    assert parse_periodic(config).first(NOON) == NOON + 5400
    assert parse_periodic(config).first(NOON + 86400) == NOON + 86400


def test_a_start_date_without_an_offset_is_local(zone: Callable[[str], None]) -> None:
    zone("Asia/Tokyo")
    config = PeriodicConfig(interval="1h", start_date="2030-02-01")
    assert parse_periodic(config).start == datetime(2030, 1, 31, 15, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "now, first",
    [
        (NOON, NOON),
        (NOON + 0.001, NOON + 3600),
        (NOON - 0.001, NOON),
        (NOON + 60, NOON + 3600),
        (NOON + 3599.999, NOON + 3600),
    ],
)
def test_the_first_cron_time_may_be_now_but_not_in_the_past(now: float, first: float) -> None:
    assert cron("0 * * * *").first(now) == first


def test_the_next_cron_time_is_always_later() -> None:
    hourly = cron("0 * * * *")
    assert hourly.next(NOON) == NOON + 3600
    assert hourly.next(NOON - 0.001) == NOON


def test_cron_begins_at_the_start_date() -> None:
    assert cron("0 0 * * *", "2030-02-01T00:00").first(NOON) == NOON + 43200
    assert cron("0 0 * * *", "2030-02-01T00:01").first(NOON) == NOON + 43200 + 86400


def test_a_leap_day_is_found_over_the_years() -> None:
    assert cron("0 0 29 2 *").next(NOON) == datetime(2032, 2, 29, tzinfo=UTC).timestamp()


def test_a_time_that_the_clocks_skip_comes_right_after_the_gap(zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    assert following(cron("30 2 * * *"), local(2026, 3, 28, 2, 30), 2) == [
        "29 03:00 +0200",
        "30 02:30 +0200",
    ]


def test_a_time_that_the_clocks_show_twice_counts_once(zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    daily = cron("30 2 * * *")
    assert following(daily, local(2026, 10, 24, 2, 30), 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    between = local(2026, 10, 25, 2, 10, fold=1)
    assert in_words([daily.next(between), daily.first(between)]) == ["26 02:30 +0100"] * 2


def test_every_twenty_minutes_stays_so_when_the_clocks_change(zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    for day in ((2026, 3, 29), (2026, 10, 25)):
        moment = local(*day)
        for _ in range(30):
            following_one = cron("*/20 * * * *").next(moment)
            assert following_one == moment + 1200
            moment = following_one


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
)
@given(
    expression=st.sampled_from(
        [
            "*/7 * * * *",
            "30 2 * * *",
            "0 */3 * * *",
            "15 1,2,3 * * SUN",
            "*/10 2 * * *",
            "0 0 * * *",
            "59 23 L * *",
        ]
    ),
    after=st.floats(1.6e9, 1.9e9),
)
def test_times_are_those_of_the_zone(name: str, expression: str, after: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        found = cron(expression).next(after)
    moments = CronSim(expression, datetime.fromtimestamp(after - 1, ZoneInfo(name)))
    assert found == next(each.timestamp() for each in moments if each.timestamp() > after)


FIELD = st.text(st.sampled_from("0123456789*/,-#LWMON"), min_size=1, max_size=6)


@given(st.lists(FIELD, min_size=5, max_size=5), st.floats(0, 4e9))
def test_any_expression_has_a_next_time_or_is_refused(fields: list[str], after: float) -> None:
    try:
        schedule = cron(" ".join(fields))
    except BadPeriodicConfig:
        return
    assert schedule.next(after) > after
    assert schedule.first(after) >= after
