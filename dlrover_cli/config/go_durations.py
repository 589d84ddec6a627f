"""Lengths of time exactly as Go reads them: `100ms`, `1.5s`, `1m30s`, `-2h`, `0`."""

import re
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # the micro sign
    "\u03bcs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MOST: Final = 2**63 - 1
_PART = re.compile(r"(?P<whole>[0-9]*)(?P<fraction>\.[0-9]*)?(?P<unit>[^0-9.]*)")


def parse_go_duration(text: str) -> float:
    """The seconds; ValueError with the reason where Go has an error."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0.0
    if not rest:
        raise ValueError(f"{text!r} is no length of time; write it like 100ms or 1m30s")
    nanoseconds = 0
    while rest:
        found = _PART.match(rest)
        assert found is not None  # all parts of it may be empty
        nanoseconds += _part(found, text)
        rest = rest[found.end() :]
    if nanoseconds > _MOST:
        raise ValueError(f"{text!r} is longer than Go can count (292 years)")
    return (-nanoseconds if sign == "-" else nanoseconds) / 1e9


def _part(found: re.Match[str], text: str) -> int:
    whole, fraction, unit = found["whole"], (found["fraction"] or "")[1:], found["unit"]
    if not whole and not fraction:
        raise ValueError(f"{text!r} has no number before {unit or found[0]!r}")
    if not unit:
        raise ValueError(f"{text!r} has no unit after {found[0]}; write it like {found[0]}s")
    scale = _NANOSECONDS.get(unit)
    if scale is None:
        raise ValueError(f"{text!r} has the unit {unit!r}; Go knows ns, us, ms, s, m and h")
    if len(whole) > 19:
        raise ValueError(f"{text!r} is longer than Go can count (292 years)")
    # Beyond a nanosecond digits do not count, and nobody has to read thousands of them.
    decimals = fraction[:18]
    one: int = 10 ** len(decimals)
    return int(whole or "0") * scale + int(decimals or "0") * scale // one
