"""What a run directory holds about the run, as far as it can be read; nothing in it is trusted.

A run may be going on, may have been killed in the middle of a line, or may be of another version:
what cannot be read is counted and left out.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.errors import UsageError

_LATEST = 1e11
"""Seconds since 1970; a later time is no time of ours, and calendars do not know it."""
_HIGHEST = 10**9


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a journal."""

    time: float
    kind: str
    data: Mapping[str, Any]
    node: str = ""
    """Whose journal it is in; empty for that of the run as a whole."""
    node_rank: int | None = None
    attempt: int | None = None

    def text(self, key: str) -> str:
        return text_in(self.data, key)

    def number(self, key: str) -> float | None:
        return number_in(self.data, key)

    def integer(self, key: str) -> int | None:
        return integer_in(self.data, key)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key)
        return tuple(map(readable, value)) if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the workers of one node were at one moment."""

    time: float
    attempt: int
    steps: Mapping[int, int]
    """By global rank."""


@dataclass(frozen=True, slots=True)
class Papers:
    """All that was read."""

    life: tuple[Event, ...] = ()
    """The journal of the run as a whole."""
    nodes: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    """The journals of the nodes, by their directories' names."""
    failures: Mapping[tuple[str, int], AgentFailureInfo] = field(default_factory=dict)
    """By node and number."""
    result: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of the nodes, where each has its own."""
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    """Of the nodes, about once a second, and more seldom in the course of a long run."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, in words."""


def read_papers(directory: Path) -> Papers:
    """Read the directory of a run; never raises because of what is in it."""
    problems: list[str] = []
    nodes = {
        path.parent.name: _journal(path, directory, problems, path.parent.name)
        for path in sorted(directory.glob("nodes/*/events.jsonl"))
    }
    results = {
        path.parent.name: _document(path, directory, problems)
        for path in sorted(directory.glob("nodes/*/result.json"))
    }
    return Papers(
        life=_journal(directory / "events.jsonl", directory, problems),
        nodes=nodes,
        failures=dict(_failures(directory, problems)),
        result=_document(directory / "result.json", directory, problems),
        results=results,
        samples={
            path.parent.name: tuple(_samples_in(_content(path, directory, problems)))
            for path in sorted(directory.glob("nodes/*/samples.jsonl"))
        },
        unreadable=tuple(problems),
    )


def events_in(content: bytes, node: str = "") -> tuple[list[Event], int]:
    """The events of a journal in the order of the file, and how many lines are none."""
    events, bad = [], 0
    for line in content.splitlines():
        if not line.strip():
            continue
        event = _event(_parsed(line), node)
        if event is None:
            bad += 1
        else:
            events.append(event)
    return events, bad


def text_in(data: Mapping[str, Any], key: str) -> str:
    """The text under this key; empty if there is none."""
    value = data.get(key)
    return "" if value is None else readable(value)


def number_in(data: Mapping[str, Any], key: str) -> float | None:
    """A number that can be counted with."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LATEST and math.isfinite(value) else None


def integer_in(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _HIGHEST:
        return None
    return value


def readable(value: object) -> str:
    """As text that every encoding of Unicode can hold."""
    return str(value).encode("utf-8", "replace").decode()


def _event(line: object, node: str) -> Event | None:
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    at, data = number_in(line, "time"), line.get("data")
    if at is None or at < 0:
        return None
    return Event(
        at,
        readable(line["kind"]),
        data if isinstance(data, dict) else {},
        node,
        integer_in(line, "node_rank"),
        integer_in(line, "attempt"),
    )


def _samples_in(content: bytes) -> Iterator[Sample]:
    """Lines that are no samples are passed over: a plot does without them."""
    for line in content.splitlines():
        sample = _parsed(line)
        if not isinstance(sample, dict) or not isinstance(sample.get("steps"), dict):
            continue
        at, attempt = number_in(sample, "time"), integer_in(sample, "attempt")
        if at is None or at < 0 or attempt is None:
            continue
        steps = {
            int(rank[:9]): integer_in(sample["steps"], rank) or 0
            for rank in sample["steps"]
            if rank.isascii() and rank.isdigit()
        }
        yield Sample(at, attempt, {rank: max(count, 0) for rank, count in steps.items()})


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _journal(path: Path, root: Path, problems: list[str], node: str = "") -> tuple[Event, ...]:
    content = _content(path, root, problems)
    events, bad = events_in(content, node)
    if bad:
        lines = "1 line" if bad == 1 else f"{bad} lines"
        problems.append(f"{lines} of {path.relative_to(root)} cannot be read")
    return tuple(events)


def _document(path: Path, root: Path, problems: list[str]) -> Mapping[str, Any]:
    content = _content(path, root, problems)
    document = _parsed(content) if content else {}
    if isinstance(document, dict):
        return document
    problems.append(f"{path.relative_to(root)} cannot be read")
    return {}


def _content(path: Path, root: Path, problems: list[str]) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        problems.append(f"{path.relative_to(root)} cannot be read: {error.strerror}")
        return b""


def _failures(
    directory: Path, problems: list[str]
) -> Iterator[tuple[tuple[str, int], AgentFailureInfo]]:
    for path in sorted(directory.glob("nodes/*/failures/*.json")):
        if not path.stem.isascii() or not path.stem.isdigit():
            continue
        content = _parsed(_content(path, directory, problems))
        try:
            yield (path.parents[1].name, int(path.stem[:9])), AgentFailureInfo.from_json(content)
        except (UsageError, TypeError, ValueError):
            problems.append(f"{path.relative_to(directory)} cannot be read")
