"""What a check has found: how bad it is, what was seen, why it matters, and what to do."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """From the best to the worst."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    about: str
    """What it is about, in a word or two: `hostname`, `/dev/shm`."""
    seen: str
    why: str = ""
    """Why it matters; empty where all is well."""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(about: str, seen: str) -> Finding:
    return Finding(Level.OK, about, seen)


def warning(about: str, seen: str, *, why: str, fix: str) -> Finding:
    """Something that hurts some jobs, or will."""
    return Finding(Level.WARNING, about, seen, why, fix)


def problem(about: str, seen: str, *, why: str, fix: str) -> Finding:
    """Something that makes a job fail."""
    return Finding(Level.PROBLEM, about, seen, why, fix)


def worst(findings: Iterable[Finding]) -> Level:
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
