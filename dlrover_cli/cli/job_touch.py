"""`dlrover-job restart`, `abort` and `node-failover`: what a person wants a live job to do."""

from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.live_run import LiveRun, ask, find_live_run, name_of, tell_of_gaps
from dlrover_cli.cli.output import Format, Output, print_document
from dlrover_cli.control.wire import Command, Request
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.words import one_line

app = commands()


@command(app, "restart")
def restart(run: LiveRun = None, output: Output = None) -> int:
    """Restart the workers of a run in place, on all its nodes.

    The launchers stay, and no restart is charged to the budget.
    """
    return _touch(run, Request(Command.RESTART), output)


@command(app, "abort")
def abort(run: LiveRun = None, output: Output = None) -> int:
    """Abort a job on all its nodes, for good.

    It ends with exit code 82, which tells whoever started it not to try again.
    """
    return _touch(run, Request(Command.ABORT), output)


@command(app, "node-failover")
def node_failover(
    run: LiveRun = None,
    node: Annotated[
        int | None,
        typer.Option("--node", metavar="N", help="The rank of the node; by default this one."),
    ] = None,
    output: Output = None,
) -> int:
    """Replace a node of a job, as a NODE verdict does.

    It counts as a node relaunch. If none is left, nothing is done.
    """
    if node is not None and node < 0:
        raise UsageError("--node counts from 0", hint="dlrover-job stacks shows the nodes")
    return _touch(run, Request(Command.NODE_FAILOVER, node=node), output)


def _touch(run: str | None, request: Request, output: Format | None) -> int:
    row = find_live_run(run)
    answer = ask(row, request)
    is_done = bool(answer.nodes) and all(node.done for node in answer.nodes)
    if output is not None:
        print_document({"run": row.run_id, "done": is_done, **answer.to_json()}, output)
    else:
        said = {one_line(node.says): name_of(node) for node in reversed(answer.nodes)}
        for says, who in reversed(said.items()):
            print(f"{row.run_id}: {says}" if len(said) == 1 else f"{row.run_id}: {who}: {says}")
        tell_of_gaps(answer)
    return ExitCode.SUCCESS if is_done and not answer.missing else ExitCode.FAILURE
