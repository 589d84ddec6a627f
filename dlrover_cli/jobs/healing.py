"""Brings the ledger back to what the run directories say, and finds the runs whose process is gone.

Cheap when there is nothing to do: the names of the directories are compared with the rows, and only
the files of runs that may still have something to tell are read.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.ledger import Ledger, UnknownRun, may_live
from dlrover_cli.jobs.ledger_rows import RunRow, row_of
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles, read_job_document
from dlrover_cli.jobs.sizes import size_of
from dlrover_cli.jobs.staging import discard
from dlrover_cli.jobs.states import ENDED, RunState
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity

GRACE_SECONDS = 10.0
"""A run that nobody owns yet is left alone for so long, though its submitter has ended."""


def heal(
    ledger: Ledger,
    state: Path,
    *,
    on_problem: Callable[[str], None] = lambda line: None,
    now: Callable[[], float] = time.time,
) -> None:
    """Runs without a row get one, rows catch up with their events, and what was left is LOST.

    Only processes of this host are judged. Raises LedgerError if the ledger cannot be used.
    """
    names = _run_directories(state / "runs")
    known = ledger.run_ids()
    ledger.add_all(_rows_from_files(state, sorted(names - known)))
    _discard_half_made(state, names - ledger.run_ids())
    for run_id in known - names:
        _forget_if_gone(ledger, run_id)
    settled = []
    for row in ledger.unsettled():
        story = _caught_up(ledger, row)
        if story is None:
            continue
        if is_abandoned(story, now()):
            story = _lost(ledger, row, on_problem, now)
        if _is_settled(story, now()):
            settled.append(row.run_id)
    for run_id in settled:
        with suppress(UnknownRun):
            ledger.set_size(run_id, size_of(RunFiles.of(state, run_id).path))
    if settled:
        ledger.settle(settled)


def is_abandoned(story: Story, now: float) -> bool:
    """Whether nobody is left who could bring the run to its end."""
    if story.state.is_over:
        return False
    if story.owner is not None:
        return not may_live(story.owner)
    if story.submitter is not None and may_live(story.submitter):
        return False
    return story.submitted is None or now - story.submitted > GRACE_SECONDS


def _run_directories(runs: Path) -> set[str]:
    """Their names; those that begin with a dot are being made or taken away."""
    try:
        with os.scandir(runs) as entries:
            return {
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return set()


def _rows_from_files(state: Path, run_ids: Iterable[str]) -> list[RunRow]:
    rows = []
    for run_id in run_ids:
        files = RunFiles.of(state, run_id)
        try:
            document = read_job_document(files.job)
            story = read_story(files.events)
        except FileNotFoundError:
            story = Story()
        except (LaunchError, OSError):
            continue  # it is being made, or it is no run of ours
        if document.run_id == run_id:
            rows.append(row_of(document, story, files.path))
    return rows


def _discard_half_made(state: Path, run_ids: Iterable[str]) -> None:
    """Take away what a submitter has left that was killed before its runs existed."""
    for run_id in run_ids:
        files = RunFiles.of(state, run_id)
        with suppress(OSError):
            story = read_story(files.events)
            writers = [each for each in (story.submitter, story.owner) if each is not None]
            if writers and not files.job.exists() and not any(map(may_live, writers)):
                discard(files)


def _forget_if_gone(ledger: Ledger, run_id: str) -> None:
    row = ledger.row(run_id)
    if not row.directory.exists() and (row.owner is None or not may_live(row.owner)):
        ledger.remove(run_id)


def _caught_up(ledger: Ledger, row: RunRow) -> Story | None:
    files = RunFiles(row.directory)
    try:
        story = read_story(files.events)
        if story.steps > row.steps:
            ledger.keep(row_of(read_job_document(files.job), story, files.path))
    except (LaunchError, OSError):
        return None
    return story


def _lost(
    ledger: Ledger, row: RunRow, on_problem: Callable[[str], None], now: Callable[[], float]
) -> Story:
    with RunRecord.open(RunFiles(row.directory), ledger, on_problem) as record:
        record.move(
            RunState.LOST,
            reason=_how_lost(record.story),
            when=lambda story: is_abandoned(story, now()),
        )
        return record.story


def _how_lost(story: Story) -> str:
    process = story.owner or story.submitter
    if process is None:
        return "nobody took it over"
    if process.boot_id != ProcessIdentity.own().boot_id:
        return f"{process.host} was restarted"
    if story.owner is None:
        return f"process {process.pid} ended while it submitted the run"
    return f"process {process.pid} is gone without a word"


def _is_settled(story: Story, now: float) -> bool:
    """Whether nobody will write to this story without telling the ledger first."""
    if story.state not in ENDED:
        return False
    if story.is_cleaned:
        return True
    writers = [each for each in (story.owner, story.cleaner) if each is not None]
    return not any(may_live(each) for each in writers)
