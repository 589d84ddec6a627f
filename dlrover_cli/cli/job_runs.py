"""`dlrover-job list`: what runs, what waits, what ended and how."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.cli.run_ids import complain_about_size, opened_ledger
from dlrover_cli.cli.run_view import as_document, print_runs
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.words import counted

USUAL_NUMBER = 20

app = commands()


def _offer_states(incomplete: str) -> list[str]:
    typed = incomplete.lower()
    names = [state.value.lower() for state in RunState]
    return [name for name in names if name.startswith(typed)]


@command(app, "list")
def list_runs(
    number: Annotated[
        int | None,
        typer.Option("-n", "--number", metavar="N", help="Only the latest N runs."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs, however many.")] = False,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only runs in this state; may be given more than once.",
            autocompletion=_offer_states,
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Show what runs, what waits, what ended and how.

    The newest is first: all that have not ended, and the latest 20, unless told otherwise.
    """
    if number is not None and everything:
        raise UsageError("-n and --all contradict each other", hint="leave one of them out")
    if number is not None and number < 1:
        raise UsageError(f"-n must be 1 or more and is {number}", hint="--all shows every run")
    wanted = _read_states(states)
    with opened_ledger() as (ledger, _):
        rows = _select(ledger, number, everything, wanted)
        more = ledger.count(wanted) - len(rows)
        complain_about_size(ledger)
    if output is not None:
        runs = [as_document(row) for row in rows]
        print_document({"runs": runs, "left_out": more}, output)
        return
    if not rows:
        remark(_why_nothing(wanted))
        return
    print_runs(rows)
    if more > 0:
        remark(f"and {counted(more, 'older run')}: dlrover-job list --all shows everything")


def _read_states(names: Sequence[str] | None) -> frozenset[RunState] | None:
    if not names:
        return None
    unknown = [name for name in names if name.upper() not in RunState.__members__]
    if unknown:
        known = ", ".join(state.value for state in RunState)
        raise UsageError(f"--state={unknown[0]} is no state of a run", hint=f"there are: {known}")
    return frozenset(RunState[name.upper()] for name in names)


def _select(
    ledger: Ledger, number: int | None, everything: bool, wanted: frozenset[RunState] | None
) -> list[RunRow]:
    """Newest first."""
    if everything or number is not None:
        return list(ledger.rows(limit=number, states=wanted))
    latest = ledger.rows(limit=USUAL_NUMBER, states=wanted)
    active = [row for row in ledger.active() if wanted is None or row.state in wanted]
    rows = {row.run_id: row for row in (*latest, *active)}
    return sorted(rows.values(), key=lambda row: (row.submitted, row.run_id), reverse=True)


def _why_nothing(wanted: frozenset[RunState] | None) -> str:
    if wanted is None:
        return "there is no run yet: `dlrover-job submit FILE` or `dlrover-run` starts one"
    return f"no run is {' or '.join(sorted(state.value for state in wanted))}"
