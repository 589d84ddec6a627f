"""RUN on a command line: an id, the beginning of one, or a job's name; and completing it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.output import remark
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import ConfigError, UsageError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.jobs.ledger_file import LedgerOutOfReach
from dlrover_cli.jobs.sizes import complaint_about_size
from dlrover_cli.telemetry.run_dir import state_directory

MOST_OFFERED = 100
"""Runs that a shell is told about at once; more cannot be looked through on a screen."""

ABOUT_RUN = "A run's id or how it begins, or a job's name for its latest run."


@contextmanager
def opened_ledger() -> Iterator[tuple[Ledger, Path]]:
    """The ledger, brought up to date with what has happened, and the state directory it is in."""
    state = state_directory(os.environ)
    with _usable_ledger(state) as ledger:
        heal(ledger, state, on_problem=remark)
        yield ledger, state
    if (state / "queue.json").exists():
        from dlrover_cli.admission.giving_back import start_giving_back

        start_giving_back(state)


def _usable_ledger(state: Path) -> Ledger:
    """On a full or read-only disk one in memory: runs must be there to be looked at and removed."""
    try:
        return Ledger.open(state, remark)
    except LedgerOutOfReach as error:
        runs = state / "runs"
        if not (os.path.isdir(runs) and os.access(runs, os.R_OK)):
            raise
        remark(f"{error.message}; the run directories are read instead")
        return Ledger.in_memory(state, remark)


def complain_about_size(ledger: Ledger) -> None:
    """Say in one line if past runs take more space than they may."""
    try:
        complaint = complaint_about_size(ledger, os.environ)
    except ConfigError as error:
        complaint = error.message  # no reason not to do what was asked for
    if complaint is not None:
        remark(complaint)


def find_run(ledger: Ledger, text: str | None) -> RunRow:
    """The run that is meant; the latest one if none is named. Raises UsageError."""
    if text is not None:
        return ledger.find(text)
    latest = ledger.rows(limit=1)
    if not latest:
        raise UsageError(
            "there is no run yet", hint="`dlrover-job submit FILE` or `dlrover-run` starts one"
        )
    return latest[0]


def find_runs(ledger: Ledger, texts: list[str]) -> list[RunRow]:
    """Those that are meant, each once, in their order. Raises UsageError."""
    found = {row.run_id: row for row in (ledger.find(text) for text in texts)}
    return list(found.values())


def offer_runs(incomplete: str) -> list[tuple[str, str]]:
    """For the shell: ids and job names that begin so, each with what it is."""
    return _offers(incomplete, frozenset(RunState))


def offer_unfinished_runs(incomplete: str) -> list[tuple[str, str]]:
    """Those that can be stopped."""
    over = {state for state in RunState if state.is_over}
    return _offers(incomplete, frozenset(RunState) - over | {RunState.LOST})


def offer_ended_runs(incomplete: str) -> list[tuple[str, str]]:
    """Those that can be cleaned up."""
    return _offers(incomplete, frozenset(state for state in RunState if state.is_over))


RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help=f"{ABOUT_RUN} By default the latest.", autocompletion=offer_runs
    ),
]


def _offers(incomplete: str, states: frozenset[RunState]) -> list[tuple[str, str]]:
    state = state_directory(os.environ)
    if not (state / "runs").is_dir():  # pressing the tab key creates nothing
        return []
    with Ledger.open(state, on_problem=lambda line: None) as ledger:
        rows = ledger.rows(limit=MOST_OFFERED * 10, states=states)
    ids = [
        (row.run_id, f"{row.name}, {row.state.value}")
        for row in rows
        if row.run_id.startswith(incomplete)
    ]
    latest = {row.name: row for row in reversed(rows) if row.name.startswith(incomplete)}
    names = [(name, f"{row.run_id}, {row.state.value}") for name, row in latest.items()]
    return (names if incomplete else [])[:MOST_OFFERED] + ids[:MOST_OFFERED]
