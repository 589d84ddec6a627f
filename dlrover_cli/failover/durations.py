"""Lengths of time as people write them: `30s`, `500ms`, `2 min`, `1.5h`."""

import re
from math import isfinite

LONGEST = 7 * 86400.0
"""A week. Nobody means more than that here, and no clock overflows before it."""


class NotADuration(ValueError):
    """The text has another form, as opposed to a time that is too long."""


def parse_duration(text: str) -> float:
    """The seconds that `text` stands for; ValueError with the reason if it stands for none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or found["unit"] not in _UNITS:
        raise NotADuration(f"takes a number and its unit (ms, s, m, h or d), not {text!r}")
    return checked(float(found["number"]) * _UNITS[found["unit"]])


def checked(seconds: float) -> float:
    """`seconds`, unless they are something that cannot be waited for."""
    if not isfinite(seconds) or not 0 <= seconds <= LONGEST:
        raise ValueError(f"takes 0 seconds to 7 days, not {seconds:g} seconds")
    return seconds


# Nine digits are thirty years in seconds; more would only serve to overflow something.
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?)\s*(?P<unit>[a-z]+)", re.ASCII)
_UNITS_BY_NAMES = {
    0.001: ("ms",),
    1.0: ("s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
_UNITS = {name: seconds for seconds, names in _UNITS_BY_NAMES.items() for name in names}
