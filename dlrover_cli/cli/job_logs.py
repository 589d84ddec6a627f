"""`dlrover-job logs`: what the workers of a run have printed, or print now."""

import json
import os
import re
import select
import sys
from collections.abc import Callable
from enum import Enum
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.log_files import (
    Copier,
    attempts_of,
    find_worker_logs,
    has_reader,
    ranks_of,
)
from dlrover_cli.cli.log_lines import Choice, JsonPrinter, Printer, WorkersOutput
from dlrover_cli.cli.output import remark
from dlrover_cli.cli.rank_choice import RankOption, chosen_ranks
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.cli.run_view import end_of
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.jobs.run_files import RunFiles

LOOK_EVERY = 0.1
"""Seconds. Files on any file system are looked at; the end of the run itself wakes us."""

app = commands()


class _Form(Enum):
    """Of the lines."""

    JSON = "json"


@command(app, "logs")
def show_logs(
    run: RunArgument = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run is over.")
    ] = False,
    ranks: RankOption = None,
    attempt: Annotated[
        str | None,
        typer.Option(metavar="K", help="This attempt, counted from 0, or 'all'; else the latest."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Only lines that match, of all attempts unless told otherwise."
        ),
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Of the letters in PATTERN.")
    ] = False,
    times: Annotated[
        bool, typer.Option("--times", help="Begin each line with when it was written.")
    ] = False,
    output: Annotated[
        _Form | None,
        typer.Option("-o", "--output", help="Print one object per line instead, for programs."),
    ] = None,
    runner: Annotated[
        bool, typer.Option("--runner", help="What the run's own process and its plugin print.")
    ] = False,
) -> None:
    """Show what a run has printed.

    Lines are in the order in which they were written, and those of several ranks begin with theirs.
    With -f, later attempts are followed too; Ctrl-C ends the command and leaves the run alone. With
    --grep, the exit code is 1 if no line matches.
    """
    if runner and (ranks or attempt or grep or times or output):
        raise UsageError(
            "--runner has no ranks, no attempts and no times", hint="leave one of them out"
        )
    choice = _choice(ranks, attempt, grep, ignore_case)
    with opened_ledger() as (ledger, state):
        row = find_run(ledger, run)
        files = RunFiles(row.directory)
        shown = (
            Copier(files.runner_log, sys.stdout.buffer)
            if runner
            else _workers_output(files, choice, times=times, form=output)
        )
        if isinstance(shown, WorkersOutput):
            _tell_what_is_kept(files)
            if not follow:
                _check_presence(row, shown)
        shown.copy()
        if follow:
            row = _follow(row, ledger, state, shown.copy)
        shown.finish()
    if not shown.has_read:
        remark(f"run {row.run_id} has {_nothing(row)}")
    if follow and row.state.is_over:
        remark(end_of(row))
    if isinstance(shown, WorkersOutput) and choice.pattern is not None and not shown.has_shown:
        raise typer.Exit(1)


def _choice(
    ranks: list[str] | None, attempt: str | None, grep: str | None, ignore_case: bool
) -> Choice:
    if attempt not in (None, "all") and not attempt.isdecimal():
        raise UsageError(
            f"--attempt takes a number or 'all', not {attempt!r}", hint="the first attempt is 0"
        )
    try:
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        pattern = None if grep is None else re.compile(os.fsencode(grep), flags)
    except re.error as error:
        raise UsageError(
            f"--grep {grep!r} is no pattern: {error}",
            hint="a backslash before ( [ * takes it as it is",
        ) from None
    return Choice(
        chosen_ranks(ranks),
        None if attempt in (None, "all") else int(attempt),
        attempt == "all" or (grep is not None and attempt is None),
        pattern,
    )


def _workers_output(
    files: RunFiles, choice: Choice, *, times: bool, form: "_Form | None"
) -> WorkersOutput:
    printer: Printer | JsonPrinter = JsonPrinter(sys.stdout.buffer)
    if form is None:
        printer = Printer(
            sys.stdout.buffer,
            names_attempts=choice.all_attempts,
            shows_times=times,
        )
    whole_lines = form is not None or choice.pattern is not None
    return WorkersOutput(files.nodes, printer, choice, whole_lines, _tell_attempt)


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
    choice = workers.choice
    attempt = attempts[-1] if choice.attempt is None else choice.attempt
    if attempt not in attempts:
        raise _not_there(row, "attempt", attempt, attempts)
    ranks = ranks_of([log for log in logs if choice.all_attempts or log.attempt == attempt])
    for rank in choice.ranks:
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
    kept = {path.name for path in files.nodes.glob("*/logs/attempt_*/*/*.log")}
    if not kept or "stdout.log" in kept:  # nothing yet: -r may have been asked for
        return
    try:
        argv = json.loads(files.job.read_bytes()).get("argv")
    except (OSError, ValueError, AttributeError):
        return
    if argv is not None:
        remark("of a run in the foreground only stderr is kept, unless -r or -t ask for more")
