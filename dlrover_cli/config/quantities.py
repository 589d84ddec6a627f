"""Amounts of a resource as Kubernetes writes them: `4`, `0.5`, `500m`, `8Gi`."""

import math
import re

_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(\.[0-9]{1,18})?)(?P<unit>[A-Za-z]{0,2})", re.ASCII)


def parse_quantity(written: object) -> float:
    """The amount in base units; ValueError with a sentence."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        amount = float(written) if abs(written) < 1e30 else math.inf
        if math.isfinite(amount) and amount >= 0:
            return amount
    if isinstance(written, str) and (found := _QUANTITY.fullmatch(written)):
        unit = _UNITS.get(found["unit"])
        if unit is not None:
            return float(found["number"]) * unit
    raise ValueError(f"{written!r} is no amount; write a number, or one with a unit: 4, 500m, 8Gi")
