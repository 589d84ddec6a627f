"""Replayed decisions: two lines for each on a terminal, one elsewhere, or one JSON document."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.failover.replay import Replayed

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision beside the expected one, if something was expected."""

    replayed: Replayed
    expected: FailoverStrategy | None

    @property
    def is_as_expected(self) -> bool:
        return self.expected in (None, self.replayed.verdict.strategy)

    @property
    def is_well(self) -> bool:
        """As expected; where nothing is expected, decided without a problem."""
        if self.expected is None:
            return not self.replayed.verdict.problems
        return self.is_as_expected


class View(Protocol):
    """Shows outcomes as they come."""

    def showing(
        self, extension: str | None, load_seconds: float, rules: Path | None
    ) -> AbstractContextManager[None]: ...

    def add(self, outcome: Outcome) -> None: ...


def view_for(stream: TextIO, *, as_json: bool) -> View:
    """What suits the stream."""
    if as_json:
        return DocumentView(stream)
    return BlocksView(stream) if stream.isatty() else LinesView(stream)


def explain(outcomes: Sequence[Outcome]) -> None:
    """Say on stderr what went wrong, and where it is not what was expected."""
    for each in outcomes:
        path, verdict = each.replayed.failure.path, each.replayed.verdict
        for problem in verdict.problems:
            print(f"{path}: {problem}", file=sys.stderr)
        if each.expected is not None and not each.is_as_expected:
            wanted, decided = each.expected.value, verdict.strategy.value
            print(f"{path}: expected {wanted}, decided {decided}", file=sys.stderr)


@dataclass(slots=True)
class LinesView:
    """One line for each decision, at once."""

    stream: TextIO

    @contextmanager
    def showing(
        self, extension: str | None, load_seconds: float, rules: Path | None
    ) -> Iterator[None]:
        yield

    def add(self, outcome: Outcome) -> None:
        replayed, verdict = outcome.replayed, outcome.replayed.verdict
        line = (
            f"{replayed.failure.path}: {verdict.strategy.value} by {verdict.decided_by} "
            f"in {_in_words(replayed.seconds)}: {_why(outcome)}"
        )
        print(line, file=self.stream, flush=True)


@dataclass(slots=True)
class DocumentView:
    """One JSON document at the end."""

    stream: TextIO
    outcomes: list[Outcome] = field(default_factory=list)

    @contextmanager
    def showing(
        self, extension: str | None, load_seconds: float, rules: Path | None
    ) -> Iterator[None]:
        yield
        document = {
            "schema_version": SCHEMA_VERSION,
            "extension": extension,
            "load_seconds": round(load_seconds, 6),
            "rules": None if rules is None else str(rules),
            "failures": [_as_document(each) for each in self.outcomes],
            "as_expected": all(each.is_as_expected for each in self.outcomes),
        }
        print(json.dumps(document, indent=2), file=self.stream, flush=True)

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class BlocksView:
    """Two lines for each decision, at once: the file, whole so that it can be copied; the rest."""

    def __init__(self, stream: TextIO) -> None:
        # Rich is loaded only for a terminal.
        from rich.console import Console

        self._console = Console(
            file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True
        )

    @contextmanager
    def showing(
        self, extension: str | None, load_seconds: float, rules: Path | None
    ) -> Iterator[None]:
        yield

    def add(self, outcome: Outcome) -> None:
        from rich.text import Text

        replayed, verdict = outcome.replayed, outcome.replayed.verdict
        strategy = Text(verdict.strategy.value, style="bold" if outcome.is_well else "bold red")
        rest = f"by {verdict.decided_by} in {_in_words(replayed.seconds)}: {_why(outcome)}"
        self._console.print(str(replayed.failure.path))
        self._console.print(Text("  "), strategy, Text(f" {rest}"), sep="")


def _as_document(outcome: Outcome) -> dict[str, Any]:
    replayed, verdict = outcome.replayed, outcome.replayed.verdict
    return {
        "file": str(replayed.failure.path),
        "kind": replayed.failure.info.kind.value,
        "strategy": verdict.strategy.value,
        "decided_by": verdict.decided_by,
        "reason": verdict.reason,
        "backoff": verdict.backoff,
        "seconds": round(replayed.seconds, 6),
        "problems": list(verdict.problems),
        "expected": None if outcome.expected is None else outcome.expected.value,
    }


def _why(outcome: Outcome) -> str:
    verdict = outcome.replayed.verdict
    wait = "" if verdict.backoff is None else f" (wait {verdict.backoff:g} s)"
    return f"{verdict.reason}{wait}"


def _in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
