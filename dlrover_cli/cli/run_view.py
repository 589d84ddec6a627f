"""How a run looks in a list and as a document."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dlrover_cli import words
from dlrover_cli.cli.output import Cell, Column, print_rows
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.ledger import RunRow

LONGEST_REASON = 72
"""In a list; `show` has all of it."""

COLUMNS = (
    Column("Run"),
    Column("Job", is_folded=True),
    Column("Engine"),
    Column("State"),
    Column("Age"),
    Column("Took"),
    Column("Result", is_folded=True),
)
STYLES = {
    RunState.PENDING: "cyan",
    RunState.STARTING: "blue",
    RunState.RUNNING: "bold blue",
    RunState.STOPPING: "yellow",
    RunState.FINISHED: "green",
    RunState.FAILED: "bold red",
    RunState.KILLED: "yellow",
    RunState.LOST: "bold magenta",
    RunState.SKIPPED: "bright_black",
}


def print_runs(rows: Sequence[RunRow]) -> None:
    """One line for each."""
    now = time.time()
    names = {row.run_id: row.name for row in rows}
    print_rows(COLUMNS, [_cells(row, now, names) for row in rows])


def as_document(row: RunRow) -> dict[str, Any]:
    """The run for a program. Times are seconds since 1970."""
    return {
        "run_id": row.run_id,
        "name": row.name,
        "platform": row.platform,
        "engine": row.engine,
        "state": row.state.value,
        "exit_code": row.exit_code,
        "reason": row.reason,
        "submission": row.submission,
        "after": list(row.after),
        "queue": row.queue,
        "priority": row.priority,
        "submitted": row.submitted,
        "started": row.started,
        "ended": row.ended,
        "owner": None if row.owner is None else row.owner.to_json(),
        "is_cleaned": row.is_cleaned,
        "size": row.size,
        "directory": str(row.directory),
    }


def result(row: RunRow) -> str:
    """Exit code and reason, as far as there is one."""
    code = "" if row.exit_code is None else f"exit {row.exit_code}"
    reason = "" if row.reason == f"exited with code {row.exit_code}" else row.reason
    return ": ".join(filter(None, (code, words.one_line(reason))))


def end_of(row: RunRow) -> str:
    """One line about a run that is over, or was left to itself."""
    told = result(row)
    separator = "" if not told else ": " if row.exit_code is None else ", "
    return f"run {row.run_id} ({row.name}) is {row.state.value}{separator}{told}"


def took(row: RunRow, now: float) -> str:
    """How long it ran, or has been running; of a lost one nobody knows how long."""
    if row.started is None or row.state is RunState.LOST:
        return ""
    return words.duration((row.ended or now) - row.started)


def engine(row: RunRow) -> str:
    """With its platform, where that is not the usual one."""
    return row.engine if row.platform == "local" else f"{row.platform}/{row.engine}"


def _cells(row: RunRow, now: float, names: Mapping[str, str]) -> list[Cell]:
    told = result(row)
    if not told and row.state is RunState.PENDING and row.after:
        told = "after " + ", ".join(names.get(run_id, run_id) for run_id in row.after)
    if len(told) > LONGEST_REASON:
        told = told[: LONGEST_REASON - 1].rstrip() + "…"
    return [
        Cell(row.run_id),
        Cell(row.name, "bold"),
        Cell(engine(row)),
        Cell(row.state.value, STYLES[row.state]),
        Cell(words.age(row.submitted, now)),
        Cell(took(row, now).replace(" ", "")),
        Cell(told),
    ]
