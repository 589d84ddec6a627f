"""`dlrover-job submit`: hand over a job file, and wait for the end of its jobs if asked to."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Format, Output, print_document, remark
from dlrover_cli.cli.run_ids import complain_about_size, opened_ledger
from dlrover_cli.cli.run_view import as_document, end_of
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.jobs.ledger import Ledger, RunRow, UnknownRun
from dlrover_cli.jobs.run_files import RunFiles

if TYPE_CHECKING:
    from dlrover_cli.jobs.admission import Admittance
    from dlrover_cli.jobs.submission import Submission, SubmittedRun

app = commands()


@command(app, "submit")
def submit_jobs(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A job file, in YAML or TOML.")],
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Stay until all of its jobs have ended, and exit as they did."),
    ] = False,
    extender: Annotated[
        str | None,
        typer.Option(
            "--extender",
            metavar="FILE",
            help="Let the jobs wait in the queues of this file, and ask its services.",
        ),
    ] = None,
    output: Output = None,
) -> int:
    """Submit the jobs of a file, and return at once.

    Prints a line for each job: the id of its run, and its name. With --wait, the exit code is that
    of the first job that failed, in their order, or 0. Ctrl-C ends the waiting and not the jobs.
    """
    # Not needed to show the help page or to complete a name.
    from dlrover_cli.jobs.submission import submit

    submission = submit(Path(file), os.environ, remark, _admittance(extender))
    if output is None:
        for run in submission.runs:
            print(run.run_id, run.name, flush=True)
    if wait:
        return _wait(submission, output)
    with opened_ledger() as (ledger, _):
        rows = _rows(submission.runs, ledger)
        complain_about_size(ledger)
    if output is not None:
        _print_rows(submission, rows, output)
    else:
        _tell_what_is_next(submission.runs)
    return ExitCode.SUCCESS


def _admittance(extender: str | None) -> "Admittance | None":
    if extender is None:
        return None
    from dlrover_cli.admission.submitting import ExtenderAdmittance

    admittance = ExtenderAdmittance.read(Path(extender))
    if admittance.config.skipped:
        remark(f"{extender}: has no meaning here: {', '.join(admittance.config.skipped)}")
    return admittance


def exit_code_of(rows: Sequence[RunRow]) -> int:
    """That of the first run that failed, in the order of the file; 0 if all have finished."""
    not_well = [row for row in rows if row.state is not RunState.FINISHED]
    # One is skipped because of another, which is to blame.
    failed = [row for row in not_well if row.state is not RunState.SKIPPED]
    if not failed:
        return ExitCode.FAILURE if not_well else ExitCode.SUCCESS
    return failed[0].exit_code or ExitCode.FAILURE


def _wait(submission: "Submission", output: Format | None) -> int:
    """For the end of all of them; a line on stderr for each."""
    try:
        rows = [row for run in submission.runs for row in _wait_for(run)]
        code = exit_code_of(rows)
        if len(rows) < len(submission.runs) and code == ExitCode.SUCCESS:
            code = ExitCode.FAILURE  # nobody knows how the others ended
    except KeyboardInterrupt:
        with opened_ledger() as (ledger, _):
            rows = _rows(submission.runs, ledger)
        code = from_signal(SIGINT)
        going_on = [row.run_id for row in rows if not row.state.is_over]
        if going_on:
            remark("\nit goes on in the background; to stop it:")
            remark(f"  dlrover-job stop {' '.join(going_on)}")
    if output is not None:
        _print_rows(submission, rows, output)
    return code


def _wait_for(run: "SubmittedRun") -> list[RunRow]:
    """The run as it ended; nothing if somebody removed it before that was seen."""
    from dlrover_cli.jobs.waiting import wait_for_end

    with suppress(FileNotFoundError):  # cleaned up as soon as it was over
        wait_for_end(RunFiles(run.directory))
    with opened_ledger() as (ledger, _):
        rows = _rows([run], ledger)
    told = [end_of(row) for row in rows]
    for line in told or [f"run {run.run_id} ({run.name}) was removed, and how it ended is unknown"]:
        remark(line)
    return rows


def _rows(runs: "Sequence[SubmittedRun]", ledger: Ledger) -> list[RunRow]:
    """Those that nobody has removed since."""
    rows = []
    for run in runs:
        with suppress(UnknownRun):
            rows.append(ledger.row(run.run_id))
    return rows


def _print_rows(submission: "Submission", rows: Sequence[RunRow], output: Format) -> None:
    runs = [as_document(row) for row in rows]
    print_document({"submission": submission.submission_id, "runs": runs}, output)


def _tell_what_is_next(runs: "Sequence[SubmittedRun]") -> None:
    run = runs[-1].name
    remark(f"follow it: dlrover-job logs -f {run}    stop it: dlrover-job stop {run}")
