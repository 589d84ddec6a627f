"""What each worker of this node is started with: its command, its environment, its streams."""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.multiprocessing import LogsSpecs

from dlrover_cli.agent.debugging import Debugging
from dlrover_cli.agent.environment import base_environment, worker_environment
from dlrover_cli.agent.logs import Shown, StreamWishes, worker_streams
from dlrover_cli.agent.rounds import Round
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.telemetry.run_dir import RunDirectory
from dlrover_cli.workers.api import WorkerLaunch
from dlrover_cli.workers.beats import BeatDirectory, BeatPage
from dlrover_cli.workers.bootstrap import bootstrap_environment


@dataclass(frozen=True, slots=True)
class Prepared:
    """The launches of one attempt, and where its workers leave their facts; by local rank."""

    launches: tuple[WorkerLaunch, ...]
    directories: Mapping[int, Path]
    pages: Mapping[int, BeatPage]

    def is_looked_into(self) -> bool:
        """Whether a person is busy with one of the workers."""
        return any(page.is_looked_into() for page in self.pages.values())


class LaunchBuilder:
    """Makes the launches of every attempt; holds what stays the same between attempts."""

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        shown: Shown,
        watchdog: Watchdog,
        run_directory: RunDirectory | None,
        say: Callable[[str], None],
        *,
        python: bool = False,
        frame_locals: bool = False,
        debugging: Debugging | None = None,
    ) -> None:
        """``python`` tells that the workers are Python programs that may be looked into."""
        self._spec = spec
        self._logs_specs = logs_specs
        self._shown = shown
        self._watchdog = watchdog
        self._run_directory = run_directory
        self._say = say
        self._python = python
        self._frame_locals = frame_locals
        self._debugging = debugging or Debugging()
        self._beats: BeatDirectory | None = None

    def close(self) -> None:
        """Remove the shared memory of all attempts."""
        if self._beats is not None:
            self._beats.close()

    def build(self, group: WorkerGroup, round_: Round) -> Prepared:
        """One launch per worker. Makes the directories of the attempt."""
        spec = self._spec
        run_id = "" if self._run_directory is None else self._run_directory.run_id
        envs = {
            worker.local_rank: worker_environment(base_environment(), spec, worker, round_, run_id)
            for worker in group.workers
        }
        wanted, world_size = self._debugging.rank, round_.placement.world_size
        if wanted is not None and wanted >= world_size:
            self._say(f"there is no rank {wanted} to look into: the job has {world_size} for now")
        directories = self._make_directories(group, round_.counters.attempt)
        pages = self._make_pages(directories, round_.counters.attempt)
        for local_rank, directory in directories.items():
            page = pages.get(local_rank)
            rank = int(envs[local_rank]["RANK"])
            envs[local_rank] = bootstrap_environment(
                envs[local_rank],
                directory,
                None if page is None else page.path,
                python=self._python,
                frame_locals=self._frame_locals,
                debugging=self._debugging.environment(rank),
            )
        self._watchdog.start(envs)
        dest = self._logs_specs.reify(envs)
        filters = {
            "stdout": tuple(getattr(spec, "duplicate_stdout_filters", None) or ()),
            "stderr": tuple(getattr(spec, "duplicate_stderr_filters", None) or ()),
        }
        launches = tuple(
            WorkerLaunch(
                local_rank=worker.local_rank,
                args=_with_macros(spec.args, worker.local_rank),
                env=envs[worker.local_rank],
                streams=self._debugging.streams(
                    worker.global_rank,
                    worker_streams(
                        dest,
                        worker.local_rank,
                        self._wishes(worker, round_, directories.get(worker.local_rank), filters),
                    ),
                ),
                error_file=dest.error_files.get(worker.local_rank, ""),
                has_stdin=self._debugging.has_stdin(worker.global_rank),
            )
            for worker in group.workers
        )
        return Prepared(launches, directories, pages)

    def _wishes(
        self,
        worker: Worker,
        round_: Round,
        directory: Path | None,
        filters: Mapping[str, tuple[str, ...]],
    ) -> StreamWishes:
        prefix, teed_prefix = self._shown.prefix_of(
            {
                "role_name": self._spec.role,
                "rank": worker.global_rank,
                "global_rank": worker.global_rank,
                "local_rank": worker.local_rank,
                "node_rank": round_.rank,
                "host": socket.gethostname(),
                "attempt": round_.counters.attempt,
            }
        )
        return StreamWishes(
            prefix,
            teed_prefix,
            self._shown.shows(worker.global_rank),
            None if directory is None else str(directory),
            filters,
        )

    def _make_directories(self, group: WorkerGroup, attempt: int) -> dict[int, Path]:
        """Where the workers leave facts about themselves, by local rank."""
        if self._run_directory is None:
            return {}
        base = self._run_directory.logs / f"attempt_{attempt}"
        directories = {}
        for worker in group.workers:
            directory = base / str(worker.global_rank)
            try:
                base.mkdir(parents=True, exist_ok=True, mode=0o700)
                directory.mkdir(exist_ok=True, mode=0o700)
            except OSError as error:
                self._say(f"cannot keep facts about workers in {directory}: {error.strerror}")
                return {}
            directories[worker.local_rank] = directory
        return directories

    def _make_pages(self, local_ranks: Iterable[int], attempt: int) -> dict[int, BeatPage]:
        try:
            if self._beats is None:
                self._beats = BeatDirectory()
            return {rank: self._beats.create(f"{attempt}.{rank}") for rank in local_ranks}
        except OSError as error:
            self._say(f"the workers' progress cannot be watched: {error}")
            return {}


def _with_macros(args: tuple[Any, ...], local_rank: int) -> tuple[Any, ...]:
    """torchrun's one macro: ``${local_rank}`` in an argument."""
    return tuple(
        arg.replace("${local_rank}", str(local_rank)) if isinstance(arg, str) else arg
        for arg in args
    )
