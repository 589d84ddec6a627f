"""What each worker of this node is started with: its command, its environment, its streams."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.multiprocessing import LogsSpecs

from dlrover_cli.agent.environment import base_environment, worker_environment
from dlrover_cli.agent.logs import line_prefix, worker_streams
from dlrover_cli.agent.rounds import Round
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.telemetry.run_dir import RunDirectory
from dlrover_cli.workers.api import WorkerLaunch


class LaunchBuilder:
    """Makes the launches of every attempt; holds what stays the same between attempts."""

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        prefix_template: str | None,
        watchdog: Watchdog,
        run_directory: RunDirectory | None,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._logs_specs = logs_specs
        self._prefix_template = prefix_template
        self._watchdog = watchdog
        self._run_directory = run_directory
        self._say = say

    def build(self, group: WorkerGroup, round_: Round) -> tuple[WorkerLaunch, ...]:
        """One launch per worker. Makes the log directories of the attempt."""
        spec = self._spec
        run_id = "" if self._run_directory is None else self._run_directory.run_id
        envs = {
            worker.local_rank: worker_environment(base_environment(), spec, worker, round_, run_id)
            for worker in group.workers
        }
        self._watchdog.start(envs)
        dest = self._logs_specs.reify(envs)
        filters = {
            "stdout": tuple(getattr(spec, "duplicate_stdout_filters", None) or ()),
            "stderr": tuple(getattr(spec, "duplicate_stderr_filters", None) or ()),
        }
        return tuple(
            WorkerLaunch(
                local_rank=worker.local_rank,
                args=_with_macros(spec.args, worker.local_rank),
                env=envs[worker.local_rank],
                streams=worker_streams(
                    dest,
                    worker.local_rank,
                    self._prefix(worker),
                    self._stderr_copy(worker, round_.counters.attempt),
                    filters,
                ),
                error_file=dest.error_files.get(worker.local_rank, ""),
            )
            for worker in group.workers
        )

    def _prefix(self, worker: Worker) -> str:
        return line_prefix(
            self._prefix_template, self._spec.role, worker.global_rank, worker.local_rank
        )

    def _stderr_copy(self, worker: Worker, attempt: int) -> str | None:
        """Where a command's stderr is kept for the verdict; function workers print as they like."""
        if self._run_directory is None or not isinstance(self._spec.entrypoint, str):
            return None
        directory: Path = self._run_directory.logs / f"attempt_{attempt}" / str(worker.global_rank)
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._say(f"cannot keep stderr in {directory}: {error.strerror}")
            return None
        return str(directory / "stderr.log")


def _with_macros(args: tuple[Any, ...], local_rank: int) -> tuple[Any, ...]:
    """torchrun's one macro: ``${local_rank}`` in an argument."""
    return tuple(
        arg.replace("${local_rank}", str(local_rank)) if isinstance(arg, str) else arg
        for arg in args
    )
