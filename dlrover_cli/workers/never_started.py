"""Workers that could not be started, as the rest of the job has to see them: as failed ones."""

import contextlib
import json
import os
import time
from pathlib import Path

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers.api import StartRequest, WorkerExit
from dlrover_cli.workers.inbox import Inbox

_STATUS = 1


class NeverStarted:
    """An attempt of which no worker became a process; its first worker failed with ``error``.

    The other nodes' workers run and would wait for ours, so the failure has to be told and decided
    on like any other.
    """

    def __init__(self, request: StartRequest, error: LaunchError, inbox: Inbox) -> None:
        first = request.launches[0]
        with contextlib.suppress(OSError):  # it is said on stderr as well
            Path(first.error_file or os.devnull).write_text(json.dumps({"message": error.message}))
        inbox.post(WorkerExit(request.attempt, first.local_rank, 0, _STATUS, time.time_ns()))

    def pids(self) -> dict[int, int]:
        return {}

    def signal(self, local_rank: int, signum: int) -> None:
        """Nobody is there."""

    def kill(self, deadline: float) -> list[int]:
        return []

    def last_output(self, local_rank: int) -> float | None:
        return None

    def tail(self, local_rank: int) -> str | None:
        return None

    def close(self) -> None:
        """Nothing was opened."""
