"""One row of the ledger: what is known of a run without opening its directory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.run_files import JobDocument
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as `dlrover-job list` shows it."""

    run_id: str
    name: str
    platform: str
    engine: str
    state: RunState
    reason: str
    exit_code: int | None
    submission: str
    after: tuple[str, ...]
    queue: str | None
    priority: int
    owner: ProcessIdentity | None
    submitted: float
    started: float | None
    ended: float | None
    size: int | None
    """In bytes, as of the last time that somebody looked."""
    is_cleaned: bool
    directory: Path
    steps: int = 0
    """How many steps of the run's story it has seen."""


COLUMNS = tuple(field.name for field in fields(RunRow) if field.name != "directory")
"""As the ledger has them. Where the directory is, follows from the run's id."""


def row_of(document: JobDocument, story: Story, directory: Path) -> RunRow:
    """What the files of a run say."""
    return RunRow(
        run_id=document.run_id,
        name=document.name,
        platform=document.platform,
        engine=document.engine,
        state=story.state,
        reason=story.reason,
        exit_code=story.exit_code,
        submission=document.submission,
        after=document.after,
        queue=document.queue,
        priority=document.priority,
        owner=story.owner,
        submitted=document.submitted,
        started=story.started,
        ended=story.ended,
        size=None,
        is_cleaned=story.is_cleaned,
        steps=story.steps,
        directory=directory,
    )


def document_of(row: RunRow) -> JobDocument:
    """What is still known of a run whose job.json cannot be read any more."""
    return JobDocument(
        run_id=row.run_id,
        name=row.name,
        platform=row.platform,
        engine=row.engine,
        submission=row.submission,
        submitted=row.submitted,
        host="",
        cwd="",
        version="",
        after=row.after,
        queue=row.queue,
        priority=row.priority,
    )


def to_columns(row: RunRow) -> dict[str, Any]:
    values = {name: _storable(getattr(row, name)) for name in COLUMNS}
    return values | {
        "state": row.state.value,
        "after": " ".join(row.after),
        "owner": process_text(row.owner),
    }


def from_columns(values: Sequence[Any], runs: Path) -> RunRow:
    """The row that SQLite returned for COLUMNS."""
    run_id, name, platform, engine, state, reason, code, submission, after, *rest = values
    queue, priority, owner, submitted, started, ended, size, is_cleaned, steps = rest
    return RunRow(
        run_id=run_id,
        name=name,
        platform=platform,
        engine=engine,
        state=_STATES[state],
        reason=reason,
        exit_code=code,
        submission=submission,
        after=tuple(after.split()),
        queue=queue,
        priority=priority,
        owner=process_of(owner),
        submitted=submitted,
        started=started,
        ended=ended,
        size=size,
        is_cleaned=bool(is_cleaned),
        steps=steps,
        directory=runs / run_id,
    )


def process_text(process: ProcessIdentity | None) -> str | None:
    return None if process is None else json.dumps(process.to_json())


def process_of(text: str | None) -> ProcessIdentity | None:
    return None if text is None else ProcessIdentity.from_json(json.loads(text))


def _storable(value: object) -> object:
    """SQLite keeps UTF-8 only; what a program prints may be anything."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value


_STATES = {state.value: state for state in RunState}
