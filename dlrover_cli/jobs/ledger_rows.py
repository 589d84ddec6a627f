"""One row of the ledger: what is known of a run without opening its directory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dlrover_cli.jobs.run_files import JobDocument
from dlrover_cli.jobs.states import RunState
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


COLUMNS = tuple(field.name for field in fields(RunRow))


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
        directory=directory,
        steps=story.steps,
    )


def to_columns(row: RunRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in COLUMNS}
    return values | {
        "state": row.state.value,
        "after": " ".join(row.after),
        "owner": process_text(row.owner),
        "directory": str(row.directory),
    }


def from_columns(values: Sequence[Any]) -> RunRow:
    (
        run_id,
        name,
        platform,
        engine,
        state,
        reason,
        exit_code,
        submission,
        after,
        queue,
        priority,
    ) = values[:11]
    owner, submitted, started, ended, size, is_cleaned, directory, steps = values[11:]
    return RunRow(
        run_id,
        name,
        platform,
        engine,
        _STATES[state],
        reason,
        exit_code,
        submission,
        tuple(after.split()) if after else (),
        queue,
        priority,
        process_of(owner),
        submitted,
        started,
        ended,
        size,
        bool(is_cleaned),
        Path(directory),
        steps,
    )


def process_text(process: ProcessIdentity | None) -> str | None:
    return None if process is None else json.dumps(process.to_json())


def process_of(text: str | None) -> ProcessIdentity | None:
    return None if text is None else ProcessIdentity.from_json(json.loads(text))


_STATES = {state.value: state for state in RunState}
