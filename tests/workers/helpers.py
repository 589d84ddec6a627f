"""Starting workers from a test without an agent, and hearing of their ends."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerLaunch, Workers
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams

NOWHERE = WorkerStreams(StreamPlan(), StreamPlan())
SLEEP = "import time; time.sleep(60)"


def python(code: str, *args: str) -> tuple[str, ...]:
    """The arguments of a quick interpreter that runs the code."""
    return ("-I", "-S", "-c", code, *args)


def request(
    argvs: Sequence[Sequence[Any]],
    *,
    program: str | Callable[..., Any] = sys.executable,
    attempt: int = 0,
    env: Mapping[str, str] | None = None,
    streams: WorkerStreams = NOWHERE,
) -> StartRequest:
    """One worker per argument list."""
    environ = dict(os.environ) | dict(env or {})
    launches = [
        WorkerLaunch(rank, tuple(argv), environ | {"LOCAL_RANK": str(rank)}, streams, "")
        for rank, argv in enumerate(argvs)
    ]
    return StartRequest(attempt, program, tuple(launches))


def next_exit(inbox: Inbox, seconds: float = 60.0) -> WorkerExit:
    """The next worker's end."""
    observation = inbox.next(time.monotonic() + seconds)
    assert isinstance(observation, WorkerExit), f"no worker ended within {seconds:g} s"
    return observation


def all_exits(inbox: Inbox, workers: Workers) -> dict[int, WorkerExit]:
    """The ends of all workers, by local rank."""
    exits: dict[int, WorkerExit] = {}
    while len(exits) < len(workers.pids()):
        exit_ = next_exit(inbox)
        exits[exit_.local_rank] = exit_
    return exits


def read_pid(path: Path) -> int:
    """A pid that a worker has written, or 0 while it has not."""
    return int(path.read_text() or 0) if path.exists() else 0
