"""`dlrover-job stacks`: where the workers of a run are right now."""

from math import isfinite
from typing import Annotated, Any

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.live_run import (
    LiveRun,
    ask,
    counted_ranks,
    find_live_run,
    name_of,
    tell_of_gaps,
)
from dlrover_cli.cli.output import Output, print_document, remark, styled
from dlrover_cli.cli.rank_choice import RankOption, chosen_ranks
from dlrover_cli.control.wire import LONGEST_WAIT, Answer, Command, NodeAnswer, Request
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.words import one_line, printable
from dlrover_cli.workers.stacks import groups_of, summarise

app = commands()


@command(app, "stacks")
def show_stacks(
    run: LiveRun = None,
    rank: RankOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show the whole stacks of all threads.")
    ] = False,
    native: Annotated[
        bool, typer.Option("--native", help="Show native stacks too, with py-spy.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long a worker may take to show its stack."),
    ] = 0.8,
    output: Output = None,
) -> int:
    """Show where the workers of a run are right now.

    All ranks of all nodes, those at the same place in one line. The workers go on; it works as well
    while they are in C code that never returns.
    """
    if not (isfinite(wait) and 0 < wait <= LONGEST_WAIT):
        raise UsageError(f"--wait must be over 0 and at most {LONGEST_WAIT:g}, and is {wait:g}")
    ranks = chosen_ranks(rank)
    row = find_live_run(run)
    request = Request(Command.STACKS, ranks=ranks, native=native, seconds=wait)
    answer = ask(row, request)
    stacks = answer.stacks
    if output is not None:
        print_document({"run": row.run_id, **document_of(answer)}, output)
    else:
        _print(answer, full=full or native)
    missing = [each for each in ranks if each not in stacks]
    if missing and not answer.missing:  # else it may run on a node that did not answer
        remark(f"no such worker runs: rank {', '.join(map(str, missing))}")
    is_whole = not missing if ranks else not answer.missing
    return ExitCode.SUCCESS if stacks and is_whole else ExitCode.FAILURE


def document_of(answer: Answer) -> dict[str, Any]:
    """For programs; also the form in which a dump keeps stacks."""
    return {
        "groups": [{"place": place, "ranks": ranks} for place, ranks in groups_of(answer.stacks)],
        "nodes": [node.to_json() for node in answer.nodes],
        "missing": answer.to_json()["missing"],
        "remarks": list(answer.remarks),
    }


def _print(answer: Answer, *, full: bool) -> None:
    stacks = answer.stacks
    nodes = [node for node in answer.nodes if node.stacks]
    if stacks:
        print(f"{counted_ranks(len(stacks), len(nodes))}:")
        for line in summarise(stacks).splitlines():
            print(f"  {printable(line)}")
    for node in answer.nodes if full else ():
        _print_node(node)
    for node in answer.nodes:
        if node.says:
            remark(one_line(f"{name_of(node)}: {node.says}"))
    tell_of_gaps(answer)


def _print_node(node: NodeAnswer) -> None:
    for rank in sorted(node.stacks):
        print()
        print(styled(f"rank {rank} on {name_of(node)}", "bold"))
        for text in (node.stacks[rank], node.native.get(rank, "")):
            for line in text.rstrip().splitlines():
                print(printable(line))
