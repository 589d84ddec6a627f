"""Where the workers' output goes: torch's LogsSpecs decide on files, we make streams of them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std, to_map

from dlrover_cli.workers.log_file import times_beside
from dlrover_cli.workers.streams import LineFilter, StreamPlan, WorkerStreams

_STDOUT = 1
_STDERR = 2


class RunLogsSpecs(LogsSpecs):
    """Logs in the run directory: one directory per attempt and global rank, never overwritten."""

    def __init__(
        self,
        log_dir: str,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        attempt = Path(self.root_log_dir) / f"attempt_{envs[0]['DLROVER_ATTEMPT']}"
        dest = LogsDest(
            filtered_stdout=str(attempt / "filtered_stdout.log"),
            filtered_stderr=str(attempt / "filtered_stderr.log"),
        )
        redirects = to_map(self._redirects, len(envs))
        tees = to_map(self._tee, len(envs))
        for local_rank, env in envs.items():
            directory = attempt / env["RANK"]
            attempt.mkdir(parents=True, exist_ok=True, mode=0o700)
            directory.mkdir(exist_ok=True, mode=0o700)
            shown = not self._local_ranks_filter or local_rank in self._local_ranks_filter
            for std, name, files, teed in (
                (Std.OUT, "stdout.log", dest.stdouts, dest.tee_stdouts),
                (Std.ERR, "stderr.log", dest.stderrs, dest.tee_stderrs),
            ):
                files[local_rank] = "" if shown else os.devnull
                if (redirects[local_rank] | tees[local_rank]) & std:
                    files[local_rank] = str(directory / name)
                if tees[local_rank] & std and shown:
                    teed[local_rank] = files[local_rank]
            dest.error_files[local_rank] = str(directory / "error.json")
            env["TORCHELASTIC_ERROR_FILE"] = dest.error_files[local_rank]
        return dest


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the workers' output is on the console, and how."""

    prefix: str | None = None
    """Before every line, teed or not; a template."""
    teed_prefix: str | None = None
    """Before teed lines alone, as torch has it; a template."""
    ranks: frozenset[int] | None = None
    """The global ranks that are shown; None for all."""

    def prefix_of(self, names: Mapping[str, object]) -> tuple[str, str]:
        """What stands before the lines of a worker, and what before its teed lines."""
        every = "" if self.prefix is None else _filled(self.prefix, names)
        if self.prefix is not None:
            return every, every
        if self.teed_prefix is None:
            return "", f"[{names['role_name']}{names['local_rank']}]:"
        return "", _filled(self.teed_prefix, names)

    def shows(self, global_rank: int) -> bool:
        return self.ranks is None or global_rank in self.ranks


@dataclass(frozen=True, slots=True)
class StreamWishes:
    """What one worker's streams need beyond torch's destinations."""

    prefix: str = ""
    teed_prefix: str = ""
    is_shown: bool = True
    directory: str | None = None
    """The worker's own in the run directory: a stderr that nobody else keeps is kept there."""
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def worker_streams(dest: LogsDest, local_rank: int, wishes: StreamWishes) -> WorkerStreams:
    """One worker's streams."""
    stdout = _plan(
        dest.stdouts.get(local_rank, ""),
        local_rank in dest.tee_stdouts,
        _STDOUT,
        _line_filter(dest.filtered_stdout, wishes.filters.get("stdout", ())),
        wishes,
    )
    stderr = _plan(
        dest.stderrs.get(local_rank, ""),
        local_rank in dest.tee_stderrs,
        _STDERR,
        _line_filter(dest.filtered_stderr, wishes.filters.get("stderr", ())),
        wishes,
    )
    return WorkerStreams(stdout, _kept(stderr, wishes))


def _plan(
    file: str, teed: bool, console: int, line_filter: LineFilter | None, wishes: StreamWishes
) -> StreamPlan:
    if not file:
        if not wishes.is_shown:
            return StreamPlan(file=os.devnull)
        return StreamPlan(console=console, prefix=wishes.prefix)
    times = times_beside(file) if os.path.dirname(file) == wishes.directory else None
    if not teed:
        return StreamPlan(file=file, times=times)
    return StreamPlan(
        file=file,
        console=console if wishes.is_shown else None,
        prefix=wishes.teed_prefix,
        line_filter=line_filter,
        keep_tail=True,
        times=times,
    )


def _kept(stderr: StreamPlan, wishes: StreamWishes) -> StreamPlan:
    """A stderr for which there is no file has one of ours, for the verdict and `dlrover-job logs`.

    Nobody asked for it, so it must not fill a disk.
    """
    if stderr.file not in (None, os.devnull) or wishes.directory is None:
        return stderr
    file = os.path.join(wishes.directory, "stderr.log")
    return replace(stderr, file=file, keep_tail=True, bounded=True, times=times_beside(file))


def _filled(template: str, names: Mapping[str, object]) -> str:
    return Template(template).safe_substitute(names)


def _line_filter(path: str, needles: tuple[str, ...]) -> LineFilter | None:
    return LineFilter(path, needles) if needles else None
