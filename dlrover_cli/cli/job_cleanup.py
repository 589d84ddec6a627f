"""`dlrover-job cleanup`: remove runs that are over, with everything that they have left."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.cli.run_ids import ABOUT_RUN, find_runs, offer_ended_runs, opened_ledger
from dlrover_cli.config.byte_sizes import show_bytes
from dlrover_cli.config.durations import parse_duration
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.words import counted

if TYPE_CHECKING:
    from dlrover_cli.jobs.cleanup import Removed

LONGEST = 100 * 365 * 86400.0

app = commands()


@command(app, "cleanup")
def clean_up(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help=ABOUT_RUN, autocompletion=offer_ended_runs),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="All that ended so long ago: 12h, 7d, 1d12h."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    output: Output = None,
) -> int:
    """Remove runs that are over.

    That is what their plugins have made for them, their files, and their lines in the list. A run
    that is not over is refused; what a lost one has left is stopped first.
    """
    if bool(runs) == (older_than is not None):
        raise UsageError(
            "cleanup needs runs or --older-than, and not both",
            hint="dlrover-job cleanup RUN..., or dlrover-job cleanup --older-than 7d",
        )
    with opened_ledger() as (ledger, state):
        rows = _named(ledger, runs) if runs else _older(ledger, older_than or "")
        removed, has_failed = (_measured(rows), False) if dry_run else _removed(rows, ledger, state)
    total = sum(each.size for each in removed)
    if output is not None:
        listed = [{"run_id": run.run_id, "name": run.name, "size": run.size} for run in removed]
        print_document({"is_dry_run": dry_run, "runs": listed, "size": total}, output)
    else:
        verb = "would remove" if dry_run else "removed"
        for each in removed:
            print(f"{verb} {each.run_id} ({each.name}), {show_bytes(each.size)}")
        if not runs:
            print(f"{verb} {counted(len(removed), 'run')}, {show_bytes(total)} in all")
    return ExitCode.FAILURE if has_failed else ExitCode.SUCCESS


def _named(ledger: Ledger, texts: list[str]) -> list[RunRow]:
    """Raises UsageError if one of them is not over; nothing is removed then."""
    rows = find_runs(ledger, texts)
    active = [row for row in rows if not row.state.is_over]
    if active:
        are = [f"{row.run_id} ({row.name}) is {row.state.value}" for row in active]
        raise UsageError(
            f"only runs that are over can be removed: {', '.join(are)}",
            hint=f"first: dlrover-job stop {' '.join(row.run_id for row in active)}",
        )
    return rows


def _older(ledger: Ledger, text: str) -> list[RunRow]:
    # Not needed to show the help page or to complete a name; so below.
    from dlrover_cli.jobs.cleanup import rows_older_than

    try:
        seconds = parse_duration(text, LONGEST)
    except ValueError as error:
        raise UsageError(f"--older-than {error}", hint="such as 12h, 7d or 1d12h") from error
    return rows_older_than(seconds, ledger)


def _measured(rows: Sequence[RunRow]) -> "list[Removed]":
    from dlrover_cli.jobs.cleanup import Removed
    from dlrover_cli.jobs.sizes import size_of

    return [Removed(row.run_id, row.name, size_of(row.directory)) for row in rows]


def _removed(rows: Sequence[RunRow], ledger: Ledger, state: Path) -> "tuple[list[Removed], bool]":
    """Those that we have removed, and whether one has to stay; what is wrong with it is said."""
    from dlrover_cli.jobs.cleanup import cleanup_run

    removed, has_failed = [], False
    for row in rows:
        try:
            gone = cleanup_run(row.run_id, ledger, state, remark)
        except DlroverError as error:
            remark(f"{row.run_id} ({row.name}) stays: {error.message}")
            has_failed = True
            continue
        if gone is None:
            remark(f"{row.run_id} ({row.name}) is gone: somebody else has removed it")
        else:
            removed.append(gone)
    return removed, has_failed
