"""When a periodic job runs: every so often, or whenever a cron expression says so. Pure.

Times are seconds since the epoch. Cron expressions, and dates without an offset, are meant in the
local time zone: a time that the clocks skip in spring is made up for right after the gap, one that
they show twice in autumn counts once, and ``*/10 * * * *`` stays every ten minutes throughout.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NoReturn

from dlrover_cli.config.durations import checked, parse_duration
from dlrover_cli.contracts.jobs import PeriodicConfig
from dlrover_cli.errors import UsageError

SHORTEST = 0.1
LONGEST = 366 * 86400.0


class BadPeriodicConfig(UsageError):
    """A `periodic_config` that names no times: what is wrong with which key of it."""

    def __init__(self, key: str, what: str, *, hint: str) -> None:
        super().__init__(f"{key} {what}", hint=hint)
        self.key = key
        self.what = what


@dataclass(frozen=True, slots=True)
class Schedule:
    """Either `interval` seconds from run to run, or the times of a cron expression."""

    interval: float | None = None
    cron: str | None = None
    start: float | None = None
    """Nothing runs before it."""

    def first(self, now: float) -> float:
        """When the first run is due, seen from `now`; never earlier than that."""
        earliest = now if self.start is None else max(now, self.start)
        if self.cron is None:
            return earliest
        return _cron_time(self.cron, earliest, may_be_equal=True)

    def next(self, after: float) -> float:
        """When the run that follows the one of `after` is due; always later than that."""
        if self.cron is None:
            assert self.interval is not None
            return after + self.interval
        return _cron_time(self.cron, after, may_be_equal=False)


def parse_periodic(config: PeriodicConfig) -> Schedule:
    """The schedule that a `periodic_config` describes. Raises BadPeriodicConfig."""
    if (config.interval is None) == (config.cron is None):
        _refuse_number_of_ways(config)
    start = None if config.start_date is None else _start_of(config.start_date)
    if config.interval is not None:
        return Schedule(interval=_interval(config.interval), start=start)
    return Schedule(cron=_checked_cron(config.cron), start=start)


def _refuse_number_of_ways(config: PeriodicConfig) -> NoReturn:
    both = config.interval is not None
    raise BadPeriodicConfig(
        "periodic_config",
        f"has {'both' if both else 'neither'} interval {'and' if both else 'nor'} cron, and takes "
        "exactly one of them",
        hint="Leave one of them out." if both else f"Write {_INTERVALS}, or a cron expression.",
    )


def _interval(value: object) -> float:
    try:
        match value:
            case bool():
                raise ValueError("takes a time, not a truth value")
            case int() | float():
                seconds = checked(float(value), LONGEST)
            case str() if "," in value:
                seconds = checked(_ai_flow_seconds(value), LONGEST)
            case str():
                seconds = parse_duration(value, LONGEST)
            case _:
                raise ValueError(f"takes a time, not a {type(value).__name__}")
        if seconds < SHORTEST:
            raise ValueError(f"takes {SHORTEST:g} seconds or more, not {seconds:g}")
    except (ValueError, OverflowError) as error:
        raise BadPeriodicConfig("interval", str(error), hint=f"Write {_INTERVALS}.") from None
    return seconds


def _ai_flow_seconds(text: str) -> float:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"takes four numbers, days,hours,minutes,seconds, not {text!r}")
    days, hours, minutes, seconds = (int(part) for part in parts)
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _start_of(value: object) -> float:
    hint = "Write it like this: 2030-01-31T06:00:00+01:00, or without the offset for local time."
    if not isinstance(value, str):
        raise BadPeriodicConfig(
            "start_date", f"takes a text, not a {type(value).__name__}", hint=hint
        )
    try:
        # Without an offset this is local time, also across the change of clocks.
        return datetime.fromisoformat(value.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadPeriodicConfig(
            "start_date", f"takes a date and time in ISO 8601, not {value!r}", hint=hint
        ) from None


def _checked_cron(value: object) -> str:
    """The expression with its fields one space apart, if there is a time that it stands for."""
    from cronsim import CronSim, CronSimError

    what = f"takes five fields, such as '30 6 * * MON-FRI', not {value!r}"
    hint = "The fields are: minute, hour, day of the month, month, day of the week."
    if not isinstance(value, str) or len(value.split()) != 5:
        raise BadPeriodicConfig("cron", what, hint=hint)
    try:
        next(CronSim(value, datetime(2000, 1, 1)))
    except CronSimError as error:
        what = f"cannot be {value!r}: {str(error).lower()}"
        raise BadPeriodicConfig("cron", what, hint=hint) from None
    except StopIteration:
        what = f"names a day that never comes: {value!r}"
        raise BadPeriodicConfig("cron", what, hint=hint) from None
    return " ".join(value.split())


def _cron_time(expression: str, after: float, *, may_be_equal: bool) -> float:
    from cronsim import CronSim

    # Expressions count whole seconds. A second earlier, and the loop decides about equality.
    begin = datetime.fromtimestamp(after - 1, _LOCAL)
    for moment in CronSim(expression, begin):
        found = moment.timestamp()
        # In the hour that the clocks show twice, times of its first showing may come up again.
        if found > after or (may_be_equal and found == after):
            return found
    raise ValueError(f"nothing follows {after} in {expression!r}")  # _checked_cron has made sure


class _LocalZone(tzinfo):
    """The process's own time zone with all its changes; `astimezone()` knows one offset only."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def fromutc(self, moment: datetime) -> datetime:
        seconds = moment.replace(tzinfo=UTC).timestamp()
        return datetime.fromtimestamp(seconds).replace(tzinfo=self)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()


_LOCAL = _LocalZone()
_INTERVALS = "interval as 90s, 1h30m, a number of seconds, or days,hours,minutes,seconds"
