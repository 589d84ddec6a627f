"""`dlrover-job dump`: all that is known of a run in one zip file, to be handed to somebody."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.dump_file import DumpFile
from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.job_stacks import document_of
from dlrover_cli.cli.live_run import ask, name_of, tell_of_gaps
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.control.wire import Answer, Command, Request
from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.jobs.ledger import RunRow
from dlrover_cli.workers.stacks import summarise

app = commands()


@command(app, "dump")
def dump(
    run: RunArgument = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE.zip", help="Where to; by default dlrover-<run>.zip."),
    ] = None,
    output: Output = None,
) -> None:
    """Collect all that is known of a run in one zip file.

    Logs, events, what was asked for, the result, flight-recorder files and the environment without
    its secrets; of a run under way also the stacks of all ranks and the state of the GPUs. What the
    workers have printed is taken as it is.
    """
    with opened_ledger() as (ledger, _):
        row = find_run(ledger, run)
    answer = _asked(row)
    path = Path(out or f"dlrover-{row.run_id}.zip")
    try:
        with DumpFile.open(path) as file:
            if answer is not None:
                _add_live(file, answer)
            file.add_run(row.directory)
    except OSError as error:
        raise LaunchError(f"cannot write {path}: {error.strerror}") from error
    if answer is not None:
        tell_of_gaps(answer)
    for problem in file.problems:
        remark(problem)
    if output is not None:
        content = {"run": row.run_id, "file": str(path), "entries": file.entries}
        print_document({**content, "problems": file.problems}, output)
    else:
        print(f"{path}: {len(file.entries)} files of run {row.run_id} ({row.name})")


def _asked(row: RunRow) -> Answer | None:
    """The stacks of a run that is under way; without them, the rest is worth having as well."""
    if row.state.is_over:
        return None
    try:
        return ask(row, Request(Command.DUMP, seconds=5.0))
    except DlroverError as error:
        remark(f"without stacks: {error.message}")
        return None


def _add_live(file: DumpFile, answer: Answer) -> None:
    stacks = answer.stacks
    file.add("stacks/stacks.json", json.dumps(document_of(answer), indent=2))
    file.add("stacks/summary.txt", summarise(stacks) + "\n" if stacks else "no workers run\n")
    for rank, text in stacks.items():
        file.add(f"stacks/rank_{rank}.txt", text)
    for number, node in enumerate(answer.nodes):
        if node.gpus:
            rank = number if node.node is None else node.node
            file.add(f"gpus/node_{rank}.txt", f"{name_of(node)}\n\n{node.gpus}")
