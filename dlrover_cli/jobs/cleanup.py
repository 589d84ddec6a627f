"""Removing runs that are over: what the plugin owes is cleaned up, then files and row go."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.contracts.jobs import AbstractJobPlugin, BaseJob
from dlrover_cli.contracts.run_states import ENDED
from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.jobs.ledger import Ledger, RunRow, UnknownRun, may_live
from dlrover_cli.jobs.loading import load_what_was_started
from dlrover_cli.jobs.plugin_calls import CleanupFailed, clean_up
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.sizes import size_of
from dlrover_cli.jobs.stopping import stop_run
from dlrover_cli.jobs.waiting import wait_for_process


@dataclass(frozen=True, slots=True)
class Removed:
    """A run that is no longer there, and the bytes that it took."""

    run_id: str
    name: str
    size: int


def cleanup_run(
    run_id: str, ledger: Ledger, state: Path, on_problem: Callable[[str], None]
) -> Removed | None:
    """Remove a run that is over; None if somebody else has. What a lost one left is stopped first.

    Raises UsageError for one that is under way, LaunchError if the plugin cannot clean up.
    """
    try:
        return _cleanup_run(run_id, ledger, state, on_problem)
    except UnknownRun:
        return None


def _cleanup_run(
    run_id: str, ledger: Ledger, state: Path, on_problem: Callable[[str], None]
) -> Removed | None:
    row = ledger.row(run_id)
    if not row.state.is_over:
        raise UsageError(
            f"run {run_id} is {row.state.value}", hint=f"first: dlrover-job stop {run_id}"
        )
    if row.state not in ENDED:
        row = stop_run(run_id, ledger, state, on_problem=on_problem)
        if row.state not in ENDED:
            raise LaunchError(f"what run {run_id} has left cannot be stopped: {row.reason}")
    _refuse_if_waited_for(row, ledger)
    files = RunFiles.of(state, run_id)
    if files.job.exists() and not row.is_cleaned:
        _pay_what_is_owed(files, ledger, on_problem)
    removed = Removed(run_id, row.name, size_of(files.path))
    is_ours = _remove(files, state)
    ledger.remove(run_id)
    return removed if is_ours else None


def rows_older_than(seconds: float, ledger: Ledger, now: float | None = None) -> list[RunRow]:
    """The runs that ended so long ago, the oldest first."""
    limit = (time.time() if now is None else now) - seconds
    rows = [row for row in ledger.rows() if row.state.is_over]
    return [row for row in reversed(rows) if (row.ended or row.submitted) <= limit]


def _refuse_if_waited_for(row: RunRow, ledger: Ledger) -> None:
    """What is gone cannot be seen to have succeeded."""
    waiting = [each.run_id for each in ledger.active() if row.run_id in each.after]
    if waiting:
        raise UsageError(
            f"run {waiting[0]} comes after run {row.run_id}, and has not ended",
            hint=f"first: dlrover-job stop {' '.join(waiting)}",
        )


def _pay_what_is_owed(files: RunFiles, ledger: Ledger, on_problem: Callable[[str], None]) -> None:
    with RunRecord.reopen(files, ledger, on_problem) as record:
        if record.document.plugin is None:  # a run in the foreground has nothing elsewhere
            return
        loaded = load_what_was_started(files, record.document, record.story)
        if loaded is None:
            return
        try:
            while not _clean_up(record, *loaded, on_problem):
                _wait_for_cleaner(record)
        except CleanupFailed as error:
            raise LaunchError(
                f"run {files.run_id} stays: its plugin could not clean up",
                hint=f"what it raised stands above; the run is in {files.path}",
            ) from error


def _clean_up(
    record: RunRecord, plugin: AbstractJobPlugin, job: BaseJob, on_problem: Callable[[str], None]
) -> bool:
    """Whether it is done, by us or by somebody else."""
    with record.cleaning() as is_due:
        if is_due:
            clean_up(plugin, job, on_problem)
    return record.refresh().is_cleaned


def _wait_for_cleaner(record: RunRecord) -> None:
    cleaner = record.story.cleaner
    if cleaner is not None and not wait_for_process(cleaner) and may_live(cleaner):
        raise LaunchError(
            f"process {cleaner.pid} of {cleaner.host} is cleaning up, and cannot be waited for"
        )


def _remove(files: RunFiles, state: Path) -> bool:
    """Under another name first: half a run must not look like one. Of several, one does it."""
    runs = state / "runs"
    for left in runs.glob(f"{_DOOMED}*"):  # by somebody who was killed
        shutil.rmtree(left, ignore_errors=True)
    doomed = runs / f"{_DOOMED}{files.run_id}"
    try:
        if not _renamed(files.path, doomed):
            return False
        try:
            shutil.rmtree(doomed)
        except FileNotFoundError:  # somebody else takes away what others have left
            shutil.rmtree(doomed, ignore_errors=True)
        return True
    except OSError as error:
        raise LaunchError(
            f"run {files.run_id} cannot be removed: {error.strerror}: {error.filename}"
        ) from error


def _renamed(path: Path, to: Path) -> bool:
    try:
        path.rename(to)
    except FileNotFoundError:
        return False
    return True


_DOOMED = ".removed-"
