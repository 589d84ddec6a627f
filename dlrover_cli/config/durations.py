"""Lengths of time as people write them: `30s`, `500ms`, `2 min`, `1.5h`, `1h30m`."""

import re
from math import isfinite
from typing import Final

WEEK: Final = 7 * 86400.0
"""Nobody means to wait for more than that, and no clock overflows before it."""


class NotADuration(ValueError):
    """The text has another form, as opposed to a time that is too long."""


def parse_duration(text: str, longest: float = WEEK) -> float:
    """The seconds that `text` stands for; ValueError with the reason if it stands for none."""
    parts = [(float(found["number"]), found["unit"]) for found in _PART.finditer(text)]
    units = [_UNITS.get(unit, 0.0) for _number, unit in parts]
    # From the largest to the smallest, each once: "1h30m", and not "30m1h" or "1h1h".
    in_order = units == sorted(set(units), reverse=True)
    if not parts or _PART.sub("", text.strip()) or 0.0 in units or not in_order:
        raise NotADuration(f"takes a number and its unit (ms, s, m, h or d), not {text!r}")
    seconds = sum(number * unit for (number, _), unit in zip(parts, units, strict=True))
    return checked(seconds, longest)


def checked(seconds: float, longest: float = WEEK) -> float:
    """`seconds`, unless they are something that cannot be waited for."""
    if not isfinite(seconds) or not 0 <= seconds <= longest:
        raise ValueError(f"takes 0 seconds to {longest / 86400:g} days, not {seconds:g} seconds")
    return seconds


# Nine digits are thirty years in seconds; more would only serve to overflow something.
_PART = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?)\s*(?P<unit>[a-z]+)\s*", re.ASCII)
_UNITS_BY_NAMES = {
    0.001: ("ms",),
    1.0: ("s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
_UNITS = {name: seconds for seconds, names in _UNITS_BY_NAMES.items() for name in names}
