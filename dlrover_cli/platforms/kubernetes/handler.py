"""A job that was submitted to Kubernetes: waited for by its runner, or by anybody else."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.jobs import AbstractJobHandler, JobResult
from dlrover_cli.platforms.kubernetes.connecting import connect
from dlrover_cli.platforms.kubernetes.ending import Ending
from dlrover_cli.platforms.kubernetes.following import Follower
from dlrover_cli.platforms.kubernetes.logs import PodLogs, show_nothing
from dlrover_cli.platforms.kubernetes.objects import RunObjects
from dlrover_cli.platforms.kubernetes.replacing import NodeReplacement
from dlrover_cli.platforms.kubernetes.request import Request
from dlrover_cli.telemetry.events import record_nothing
from dlrover_cli.telemetry.run_dir import write_json_atomically


class KubernetesHandler(AbstractJobHandler):
    """The request and the run, from which the names of all objects follow."""

    _keeps_logs = False

    def __init__(self, request: Request, run_id: str, run_directory: str) -> None:
        super().__init__()
        self.request: dict[str, Any] = request.to_json()
        self.run_id = run_id
        self.run_directory = run_directory

    def keep_logs(self) -> None:
        """Of the process that submitted the job: waiting for its end writes what pods print."""
        self._keeps_logs = True

    def wait(self, timeout: float | None = None) -> JobResult | None:
        """How the job ended; None if it still runs after ``timeout`` seconds.

        Written down when it is known: the objects go when the job is cleaned up.
        """
        written = read_ending(self.run_directory)
        if written is not None:
            return JobResult(written.exit_code, written.reason)
        objects = self._objects()
        logs = replacement = None
        if self._keeps_logs and timeout is None:  # who only looks would write lines twice
            nodes = Path(self.run_directory) / "nodes"
            nodes.mkdir(mode=0o700, exist_ok=True)
            logs = PodLogs(objects.client, objects.request.namespace, nodes, show_nothing, _say)
            replacement = NodeReplacement(objects, _say, record_nothing)
        try:
            ending = Follower(objects, _say, logs, replacement=replacement).follow(timeout)
        finally:
            if logs is not None:
                logs.close()
        if ending is None:
            return None
        # Whoever stopped it may have written first, and knows why the job is gone.
        ending = read_ending(self.run_directory) or ending
        write_ending(self.run_directory, ending)
        return JobResult(ending.exit_code, ending.reason)

    def _objects(self) -> RunObjects:
        return RunObjects(connect(os.environ), Request.from_json(self.request), self.run_id)


def read_ending(run_directory: str) -> Ending | None:
    """What was written down; None if nothing was."""
    try:
        document = json.loads(_ending_file(run_directory).read_text())
        return Ending(int(document["exit_code"]), str(document["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_ending(run_directory: str, ending: Ending) -> None:
    """Let other processes know; one that cannot be written is known here all the same."""
    path = _ending_file(run_directory)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        document = {"exit_code": int(ending.exit_code), "reason": ending.reason}
        write_json_atomically(path, document)


def _ending_file(run_directory: str) -> Path:
    return Path(run_directory) / "exits" / "kubernetes.json"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
