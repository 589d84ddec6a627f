"""A run that is under way: which one is meant, and a question to it over its control socket."""

from typing import Annotated

import typer

from dlrover_cli.cli.output import remark
from dlrover_cli.cli.run_ids import ABOUT_RUN, offer_unfinished_runs, opened_ledger
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.control.client import ask_run
from dlrover_cli.control.wire import Answer, NodeAnswer, Request
from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.words import counted, node_name, one_line

_GOING_ON = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})

LiveRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help=f"{ABOUT_RUN} By default the latest that is under way.",
        autocompletion=offer_unfinished_runs,
    ),
]


def find_live_run(run: str | None) -> RunRow:
    """The run that is meant, which is under way. Raises UsageError, LaunchError."""
    with opened_ledger() as (ledger, _):
        row = _latest(ledger) if run is None else ledger.find(run)
    if row.state is RunState.LOST:
        raise LaunchError(
            f"run {row.run_id} is LOST: {row.reason}",
            hint=f"dlrover-job stop {row.run_id} ends what may be left of it",
        )
    if row.state.is_over:
        raise LaunchError(
            f"run {row.run_id} ({row.name}) is over: {row.state.value}",
            hint=f"dlrover-job why {row.run_id} tells how it ended; "
            f"dlrover-job dump {row.run_id} collects what it left",
        )
    if row.state is RunState.PENDING:
        raise LaunchError(
            f"run {row.run_id} ({row.name}) has not started yet",
            hint=f"dlrover-job show {row.run_id} tells what it waits for",
        )
    return row


def ask(row: RunRow, request: Request) -> Answer:
    """Ask the run. Raises LaunchError with what to do."""
    return ask_run(row.directory, row.run_id, request)


def tell_of_gaps(answer: Answer) -> None:
    """Say which nodes are not in the answer, and what else there is to know about it."""
    for line in answer.remarks:
        remark(one_line(line))
    for missing in answer.missing:
        remark(one_line(f"{missing.who}: {missing.reason}"))


def name_of(node: NodeAnswer) -> str:
    """`node 1 (host)`; of a node that has no rank yet, and of the manager, the host alone."""
    return node.host if node.node is None else node_name(node.node, node.host)


def counted_ranks(number: int, nodes: int) -> str:
    return counted(number, "rank") + ("" if nodes == 1 else f" on {counted(nodes, 'node')}")


def _latest(ledger: Ledger) -> RunRow:
    rows = ledger.rows(limit=1, states=_GOING_ON)
    if not rows:
        raise UsageError("no run is under way", hint="dlrover-job list shows those that were")
    return rows[0]
