"""Replayed decisions: a table on a terminal, a line for each elsewhere, or one JSON document."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.failover.replay import Replayed

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision beside the expected one, if something was expected."""

    replayed: Replayed
    expected: FailoverStrategy | None

    @property
    def is_well(self) -> bool:
        """As expected; without an expectation, decided without a problem."""
        verdict = self.replayed.verdict
        return not verdict.problems if self.expected is None else verdict.strategy is self.expected


def show(
    outcomes: Sequence[Outcome],
    *,
    extension: str | None,
    load_seconds: float,
    rules: Path | None,
    as_json: bool,
) -> None:
    """Decisions on stdout, problems and unmet expectations on stderr."""
    if as_json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "extension": extension,
            "load_seconds": round(load_seconds, 6),
            "rules": None if rules is None else str(rules),
            "failures": [_as_document(each) for each in outcomes],
            "as_expected": all(_is_as_expected(each) for each in outcomes),
        }
        print(json.dumps(document, indent=2))
    elif sys.stdout.isatty():
        _show_table(outcomes)
    else:
        for each in outcomes:
            print(_line(each))
    sys.stdout.flush()
    for each in outcomes:
        path = each.replayed.failure.path
        for problem in each.replayed.verdict.problems:
            print(f"{path}: {problem}", file=sys.stderr)
        if not _is_as_expected(each) and each.expected is not None:
            print(
                f"{path}: expected {each.expected.value}, "
                f"decided {each.replayed.verdict.strategy.value}",
                file=sys.stderr,
            )


def _is_as_expected(outcome: Outcome) -> bool:
    return outcome.expected in (None, outcome.replayed.verdict.strategy)


def _as_document(outcome: Outcome) -> dict[str, object]:
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


def _line(outcome: Outcome) -> str:
    replayed, verdict = outcome.replayed, outcome.replayed.verdict
    return (
        f"{replayed.failure.path}: {verdict.strategy.value} by {verdict.decided_by} "
        f"in {_in_words(replayed.seconds)}: {verdict.reason}{_backoff(outcome)}"
    )


def _show_table(outcomes: Sequence[Outcome]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("Failure", "Strategy", "Decided by", "Reason", "Took"):
        table.add_column(heading, overflow="fold")
    for each in outcomes:
        replayed, verdict = each.replayed, each.replayed.verdict
        table.add_row(
            Text(str(replayed.failure.path)),
            Text(verdict.strategy.value, style="bold" if each.is_well else "bold red"),
            Text(verdict.decided_by),
            Text(f"{verdict.reason}{_backoff(each)}"),
            Text(_in_words(replayed.seconds)),
        )
    Console(highlight=False, markup=False, emoji=False).print(table)


def _backoff(outcome: Outcome) -> str:
    backoff = outcome.replayed.verdict.backoff
    return "" if backoff is None else f" (wait {backoff:g} s)"


def _in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
