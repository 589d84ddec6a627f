"""A `periodic_config` as the five fields of a CronJob, in UTC; not all can be said so."""

import re
import time
from collections.abc import Callable

from dlrover_cli.contracts.jobs import PeriodicConfig
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.periodic import parse_periodic

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_WEEK = 7 * _DAY


def cron_of(config: PeriodicConfig, where: Callable[[str], str] = lambda key: key) -> str:
    """The fields. Raises UsageError for a time that they cannot name.

    An interval is counted from midnight, in UTC, on the whole of it: that is what cron can say.
    Cron expressions are meant in UTC here, where the cluster's clock is the only one that counts.
    """
    schedule = parse_periodic(config)
    if schedule.start is not None and schedule.start > time.time():
        raise UsageError(
            f"{where('start_date')}: a CronJob of Kubernetes cannot wait for a start_date",
            hint="take start_date out and submit the job then",
        )
    if schedule.cron is not None:
        return _plain(schedule.cron, where)
    assert schedule.interval is not None
    found = _fields(schedule.interval)
    if found is None:
        raise UsageError(
            f"{where('interval')}: cron, which a CronJob of Kubernetes goes by, cannot say every "
            f"{schedule.interval:g} seconds",
            hint="take minutes that divide an hour, hours that divide a day, one day or one week",
        )
    return found


def _fields(seconds: float) -> str | None:
    if seconds != int(seconds) or seconds % _MINUTE:
        return None
    whole = int(seconds)
    if whole < _HOUR and _HOUR % whole == 0:
        return "* * * * *" if whole == _MINUTE else f"*/{whole // _MINUTE} * * * *"
    if _HOUR <= whole < _DAY and whole % _HOUR == 0 and _DAY % whole == 0:
        return "0 * * * *" if whole == _HOUR else f"0 */{whole // _HOUR} * * *"
    return {_DAY: "0 0 * * *", _WEEK: "0 0 * * 0"}.get(whole)


def _plain(cron: str, where: Callable[[str], str]) -> str:
    """What only our own cron knows, such as L and #, Kubernetes would refuse."""
    for field in cron.upper().split():
        if re.search("[#LW]", re.sub("|".join(_NAMES), "", field)):
            raise UsageError(
                f"{where('cron')}: the cron of Kubernetes does not know {field!r}",
                hint="name days by numbers, names, lists, ranges and steps",
            )
    return cron


_NAMES = (
    *("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"),
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
