"""The samples of one node in its run directory: the latest one, and a history that stays small.

``live.json`` is replaced in one piece, but only when something has changed, and now and then as a
sign of life. ``samples.jsonl`` grows by a line per interval; the interval doubles with every 64 KiB
of the file, so that a run of weeks stays below a megabyte. A disk that cannot be written costs the
files and one line on stderr, never the job.
"""

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlrover_cli.telemetry.live import NodeSample, RankSample
from dlrover_cli.telemetry.whole_writes import append_line

SCHEMA_VERSION = 1
LIVE_FILE = "live.json"
HISTORY_FILE = "samples.jsonl"
SIGN_OF_LIFE_SECONDS = 10.0
"""A running node's ``live.json`` is never older than this by much."""

_CHUNK = 64 * 1024
_LARGEST = 1024 * 1024
# A clock that is a little early must not skip every other sample.
_TOLERANCE = 0.25


class SampleFiles:
    """A listener that keeps the samples of one agent."""

    def __init__(self, directory: Path, on_problem: Callable[[str], None]) -> None:
        self._live = directory / LIVE_FILE
        self._history = directory / HISTORY_FILE
        self._on_problem = on_problem
        self._given_up = False
        self._shown: NodeSample | None = None
        self._kept: NodeSample | None = None

    def __call__(self, sample: NodeSample) -> None:
        """Keep the sample, as far as it is worth it."""
        if self._given_up:
            return
        try:
            self._keep(sample)
            self._show(sample)
        except OSError as error:
            self._given_up = True
            self._on_problem(
                f"cannot write to {self._live.parent}: {error.strerror}; "
                "dlrover-job top will not see this node"
            )

    def _show(self, sample: NodeSample) -> None:
        if self._shown is not None and not _differs(self._shown, sample):
            return
        document = {"schema_version": SCHEMA_VERSION, **asdict(sample)}
        _replace(self._live, json.dumps(document).encode("ascii"))
        self._shown = sample

    def _keep(self, sample: NodeSample) -> None:
        try:
            size = self._history.stat().st_size
        except FileNotFoundError:
            size = 0
        if not self._is_worth_keeping(sample, size):
            return
        line = (json.dumps(_history_line(sample), separators=(",", ":")) + "\n").encode("ascii")
        fd = os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            append_line(fd, line)
        finally:
            os.close(fd)
        self._kept = sample

    def _is_worth_keeping(self, sample: NodeSample, size: int) -> bool:
        kept = self._kept
        if kept is None or kept.attempt != sample.attempt or sample.ended:
            return size < _LARGEST  # a crash loop has many first and last samples
        interval = float(2 ** (size // _CHUNK))
        return sample.time >= kept.time + interval - _TOLERANCE


def _differs(shown: NodeSample, sample: NodeSample) -> bool:
    """Whether somebody who looks at the run would see a difference."""
    if sample.time - shown.time >= SIGN_OF_LIFE_SECONDS or sample.time < shown.time:
        return True
    if (shown.attempt, shown.ended) != (sample.attempt, sample.ended):
        return True
    return [_roughly(rank) for rank in shown.ranks] != [_roughly(rank) for rank in sample.ranks]


def _roughly(rank: RankSample) -> tuple[object, ...]:
    """What of a worker matters, without the noise of its CPU time and memory."""
    cpu = None if rank.cpu_percent is None else round(rank.cpu_percent / 10)
    memory = None if rank.memory_bytes is None else rank.memory_bytes >> 24
    return (rank.pid, rank.state, rank.phase, rank.at_prompt, rank.steps, cpu, memory)


def _history_line(sample: NodeSample) -> dict[str, Any]:
    return {
        "time": round(sample.time, 3),
        "attempt": sample.attempt,
        "ended": sample.ended,
        "steps": {str(rank.global_rank): rank.steps for rank in sample.ranks},
        "cpu_percent": round(sum(rank.cpu_percent or 0.0 for rank in sample.ranks)),
        "memory_bytes": sum(rank.memory_bytes or 0 for rank in sample.ranks),
    }


def _replace(path: Path, content: bytes) -> None:
    """Without waiting for the disk: what a crash of the machine takes is a second old.

    All drafts have one name, so that launchers that are killed do not leave one each.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=0) as file:
            if file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
