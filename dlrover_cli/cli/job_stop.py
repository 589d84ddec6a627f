"""`dlrover-job stop`: end runs, wherever they were started."""

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.cli.run_ids import ABOUT_RUN, find_runs, offer_unfinished_runs, opened_ledger
from dlrover_cli.cli.run_view import as_document
from dlrover_cli.contracts.run_states import ENDED, RunState
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.jobs.ledger import Ledger, RunRow, UnknownRun
from dlrover_cli.jobs.run_files import RunFiles

app = commands()


@command(app, "stop")
def stop_runs(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help=ABOUT_RUN, autocompletion=offer_unfinished_runs),
    ],
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long the job may take to end by itself before it is killed.",
        ),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Ask them to stop, and return at once.")
    ] = False,
    output: Output = None,
) -> int:
    """Stop runs and all that they have started.

    Waits for their end. Works for runs in the background and in the foreground, and for what is
    left of a lost one. A run that is over already is no error.
    """
    if grace is not None and not (isfinite(grace) and grace >= 0):
        raise UsageError(f"--grace must be 0 or more and is {grace:g}", hint="give it in seconds")
    with opened_ledger() as (ledger, state):
        before = find_runs(ledger, runs)
        after, refused, gone = _stop(before, ledger, state, grace, is_waited_for=not no_wait)
    if output is not None:
        print_document({"runs": [as_document(row) for row in after]}, output)
    else:
        for old, new in zip(before, after, strict=True):
            if new.run_id in gone:
                print(f"{new.run_id} ({new.name}) is over, and was removed")
            else:
                print(_what_happened(old, new, is_refused=new.run_id in refused))
    is_over = all(row.state in ENDED or row.run_id in gone for row in after)
    is_done = not refused and (is_over or no_wait)
    return ExitCode.SUCCESS if is_done else ExitCode.FAILURE


def _stop(
    rows: Sequence[RunRow],
    ledger: Ledger,
    state: Path,
    grace: float | None,
    *,
    is_waited_for: bool,
) -> tuple[list[RunRow], set[str], set[str]]:
    """All of them are asked before any is waited for.

    The runs as they are then, which of them could not be, and which somebody has removed since.
    """
    # Not needed to show the help page or to complete a name.
    from dlrover_cli.jobs.stopping import stop_run
    from dlrover_cli.jobs.waiting import wait_for_end

    refused: set[str] = set()
    gone: set[str] = set()

    def stop(row: RunRow, *, wait: bool) -> RunRow:
        try:
            return stop_run(row.run_id, ledger, state, grace=grace, wait=wait, on_problem=remark)
        except UnknownRun:
            gone.add(row.run_id)
            return row
        except DlroverError as error:
            remark(f"run {row.run_id} cannot be stopped: {error.message}")
            if error.hint:
                remark(f"hint: {error.hint}")
            refused.add(row.run_id)
            return ledger.row(row.run_id)

    if not is_waited_for or len(rows) == 1:
        return [stop(row, wait=is_waited_for) for row in rows], refused, gone
    asked = [stop(row, wait=False) for row in rows]
    for row in asked:
        if row.state not in ENDED and row.run_id not in refused | gone:
            with suppress(FileNotFoundError):  # cleaned up as soon as it was over
                wait_for_end(RunFiles(row.directory), grace)
    # Most have ended by now, and that is all that is seen of them.
    ended = [
        row if row.state in ENDED or row.run_id in refused | gone else stop(row, wait=True)
        for row in asked
    ]
    return ended, refused, gone


def _what_happened(before: RunRow, after: RunRow, *, is_refused: bool) -> str:
    name = f"{after.run_id} ({after.name})"
    if before.state in ENDED:
        return f"{name} was over already: {before.state.value}"
    match after.state:
        case RunState.KILLED:
            return f"{name} is stopped"
        case state if state in ENDED:
            return f"{name} ended by itself: {state.value}"
        case RunState.LOST:
            return f"{name} is LOST: {after.reason}"
        case state if is_refused:
            return f"{name} is still {state.value}"
        case _:
            return f"{name} is asked to stop"
