"""`dlrover-job logs`: what the workers of a run have printed, or print now."""

import json
import select
import sys
from collections.abc import Callable
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.log_files import (
    Copier,
    WorkersOutput,
    attempts_of,
    find_worker_logs,
    has_reader,
    ranks_of,
)
from dlrover_cli.cli.output import remark
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.cli.run_view import end_of
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.jobs.run_files import RunFiles

LOOK_EVERY = 0.1
"""Seconds. Files on any file system are looked at; the end of the run itself wakes us."""

app = commands()


@command(app, "logs")
def show_logs(
    run: RunArgument = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run is over.")
    ] = False,
    ranks: Annotated[
        list[int] | None,
        typer.Option(
            "--rank", metavar="RANK", help="Only this global rank; may be given more than once."
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="K", help="This attempt, counted from 0, instead of the latest."),
    ] = None,
    runner: Annotated[
        bool, typer.Option("--runner", help="What the run's own process and its plugin print.")
    ] = False,
) -> None:
    """Show what a run has printed.

    Lines of several ranks begin with theirs. With -f, later attempts are followed too; Ctrl-C ends
    the command and leaves the run alone.
    """
    if runner and (ranks or attempt is not None):
        raise UsageError("--runner has no ranks and no attempts", hint="leave one of them out")
    with opened_ledger() as (ledger, state):
        row = find_run(ledger, run)
        files = RunFiles(row.directory)
        copier = Copier(sys.stdout.buffer)
        workers = WorkersOutput(files.nodes, copier, tuple(ranks or ()), attempt, _tell_attempt)
        if not runner:
            _tell_what_is_kept(files)
        if not runner and not follow:
            _check_presence(row, workers)
        copy = partial(copier.copy, files.runner_log) if runner else workers.copy
        copy()
        if follow:
            row = _follow(row, ledger, state, copy)
        copier.finish()
    if not copier.has_copied:
        remark(f"run {row.run_id} has {_nothing(row)}")
    if follow and row.state.is_over:
        remark(end_of(row))


def _follow(row: RunRow, ledger: Ledger, state: Path, copy: Callable[[], None]) -> RunRow:
    """Copy until the run is over or nobody reads any more; the run as it is then."""
    while not row.state.is_over and _has_reader():
        row = _wait(row, ledger, state)
        copy()  # once more after its end: nothing is lost
    return row


def _wait(row: RunRow, ledger: Ledger, state: Path) -> RunRow:
    """For a moment, or less if the run's process ends in it; the run as it is then."""
    if row.owner is not None and row.owner.is_here:
        with row.owner.opened() as descriptor:
            if descriptor is not None and not select.select([descriptor], [], [], LOOK_EVERY)[0]:
                return row
        heal(ledger, state)  # it has told its end, or nobody will
        row = ledger.row(row.run_id)
        if row.state.is_over:
            return row
    select.select([], [], [], LOOK_EVERY)
    return ledger.row(row.run_id)


def _has_reader() -> bool:
    try:
        return has_reader(sys.stdout.fileno())
    except UnsupportedOperation:  # no file
        return True


def _check_presence(row: RunRow, workers: WorkersOutput) -> None:
    """Raises UsageError for an attempt or rank that is not there, where there are others."""
    logs = find_worker_logs(workers.nodes)
    attempts = attempts_of(logs)
    if not attempts:
        return
    attempt = attempts[-1] if workers.attempt is None else workers.attempt
    if attempt not in attempts:
        raise _not_there(row, "attempt", attempt, attempts)
    ranks = ranks_of([log for log in logs if log.attempt == attempt])
    for rank in workers.ranks:
        if rank not in ranks:
            raise _not_there(row, "rank", rank, ranks)


def _not_there(row: RunRow, noun: str, number: int, there: list[int]) -> UsageError:
    known = ", ".join(map(str, there))
    return UsageError(f"run {row.run_id} has no {noun} {number}", hint=f"there are: {known}")


def _nothing(row: RunRow) -> str:
    return "left no output" if row.state.is_over else f"no output yet; it is {row.state.value}"


def _tell_attempt(number: int) -> None:
    remark(f"attempt {number}:")


def _tell_what_is_kept(files: RunFiles) -> None:
    """Of a run in the foreground, stdout is its terminal's."""
    if any(files.nodes.glob("*/logs/attempt_*/*/stdout.log")):
        return
    try:
        argv = json.loads(files.job.read_bytes()).get("argv")
    except (OSError, ValueError, AttributeError):
        return
    if argv is not None:
        remark("of a run in the foreground only stderr is kept, unless -r or -t ask for more")
