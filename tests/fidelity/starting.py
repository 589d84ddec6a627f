"""The same programs as workers of torchrun, as fresh and as warm ones of ours, without an agent.

torchrun's side is torch's own code that starts its workers; ours are the nursery and the zygote.
An agent would end all workers with the first that fails, and here most of them do.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dlrover_cli.workers.api import StartRequest, WorkerLaunch
from dlrover_cli.workers.bootstrap import bootstrap_environment
from dlrover_cli.workers.commands import CommandStarter, NurseryClient
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams
from tests.workers.helpers import all_exits

ARGUMENTS = ("--lr", "0.1")
_DIFFERS_FROM_RUN_TO_RUN = (
    ("0x[0-9a-f]{6,}", "<address>"),
    (r"(?m)^object refcount : \d+$", "object refcount"),
    # What is loaded, and how deep a script can call: see test_facts.
    (r"\n\nExtension modules: .* \(total: \d+\)", ""),
    (r"Previous line repeated \d+ more times", "Previous line repeated"),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One program's end: its status as Popen counts, and all that it has written."""

    status: int
    stdout: str
    stderr: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run_under_torchrun(commands: Sequence[Sequence[str]], logs: Path) -> list[Ended]:
    """As torch's agent starts them."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    context = start_processes(
        name="fidelity",
        entrypoint=sys.executable,
        args={rank: ("-u", *command) for rank, command in enumerate(commands)},
        envs={rank: {"LOCAL_RANK": str(rank)} for rank in range(len(commands))},
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    handlers = [context.subprocess_handlers[rank] for rank in range(len(commands))]
    return [
        Ended(handler.proc.wait(60), _text(context.stdouts[rank]), _text(context.stderrs[rank]))
        for rank, handler in enumerate(handlers)
    ]


def run_under_us(
    commands: Sequence[Sequence[str]], logs: Path, preloads: Sequence[str] | None
) -> list[Ended]:
    """As our agent starts them; fresh without ``preloads``."""
    with _starter(preloads) as starter, closing(Inbox()) as inbox:
        launches = [_launch(rank, command, logs) for rank, command in enumerate(commands)]
        workers = starter.start(StartRequest(0, sys.executable, tuple(launches)), inbox)
        with closing(workers):
            exits = all_exits(inbox, workers)
    return [
        Ended(
            exits[rank].status,
            _text(logs / str(rank) / "stdout"),
            _text(logs / str(rank) / "stderr"),
        )
        for rank in range(len(commands))
    ]


@contextmanager
def _starter(preloads: Sequence[str] | None) -> Iterator[CommandStarter]:
    problems: list[str] = []
    zygote = None if preloads is None else NurseryClient.start_warm(preloads)
    starter = CommandStarter(problems.append, zygote)
    try:
        yield starter
    finally:
        starter.close(leave_survivors=False)
    assert not problems


def _launch(rank: int, command: Sequence[str], logs: Path) -> WorkerLaunch:
    directory = logs / str(rank)
    directory.mkdir(parents=True)
    streams = WorkerStreams(
        StreamPlan(file=str(directory / "stdout")), StreamPlan(file=str(directory / "stderr"))
    )
    env = bootstrap_environment(_environment(rank), directory, None)
    return WorkerLaunch(rank, ("-u", *command), env, streams, "")


def _environment(rank: int) -> Mapping[str, str]:
    return {**os.environ, "LOCAL_RANK": str(rank)}


def _text(path: str | Path) -> str:
    text = Path(path).read_bytes().decode("utf-8", "backslashreplace")
    for pattern, shown in _DIFFERS_FROM_RUN_TO_RUN:
        text = re.sub(pattern, shown, text)
    return text
