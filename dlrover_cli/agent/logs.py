"""Where the workers' output goes: torch's LogsSpecs decide on files, we make streams of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from string import Template

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std, to_map

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


def line_prefix(template: str | None, role: str, rank: int, local_rank: int) -> str:
    """What stands before each teed line."""
    if template is None:
        return f"[{role}{local_rank}]:"
    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank)


def worker_streams(
    dest: LogsDest,
    local_rank: int,
    prefix: str,
    stderr_copy: str | None,
    filters: Mapping[str, tuple[str, ...]],
) -> WorkerStreams:
    """One worker's streams. ``stderr_copy`` is where a stderr that goes to the console is kept."""
    stdout = _plan(
        dest.stdouts.get(local_rank, ""),
        local_rank in dest.tee_stdouts,
        _STDOUT,
        prefix,
        _line_filter(dest.filtered_stdout, filters.get("stdout", ())),
    )
    stderr = _plan(
        dest.stderrs.get(local_rank, ""),
        local_rank in dest.tee_stderrs,
        _STDERR,
        prefix,
        _line_filter(dest.filtered_stderr, filters.get("stderr", ())),
    )
    if stderr.file is None and stderr_copy is not None:
        stderr = StreamPlan(file=stderr_copy, console=_STDERR, keep_tail=True)
    return WorkerStreams(stdout, stderr)


def _plan(
    file: str, teed: bool, console: int, prefix: str, line_filter: LineFilter | None
) -> StreamPlan:
    if not file:
        return StreamPlan(console=console)
    if not teed:
        return StreamPlan(file=file)
    return StreamPlan(
        file=file, console=console, prefix=prefix, line_filter=line_filter, keep_tail=True
    )


def _line_filter(path: str, needles: tuple[str, ...]) -> LineFilter | None:
    return LineFilter(path, needles) if needles else None
