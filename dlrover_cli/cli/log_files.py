"""The output of a run's workers: files that may still grow, by attempt and rank."""

import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

STREAMS = ("stdout.log", "stderr.log")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, order=True)
class WorkerLog:
    """The directory of one rank in one attempt."""

    attempt: int
    rank: int
    path: Path

    def files(self) -> list[Path]:
        """Of the streams that were kept so far."""
        paths = (self.path / name for name in STREAMS)
        return [path for path in paths if path.exists()]


def find_worker_logs(nodes: Path) -> list[WorkerLog]:
    """All of a run, by attempt and rank."""
    found = []
    for path in nodes.glob("*/logs/attempt_*/*"):
        attempt, rank = path.parent.name.removeprefix("attempt_"), path.name
        if attempt.isdecimal() and rank.isdecimal():
            found.append(WorkerLog(int(attempt), int(rank), path))
    return sorted(found)


def attempts_of(logs: Sequence[WorkerLog]) -> list[int]:
    return sorted({log.attempt for log in logs})


def ranks_of(logs: Sequence[WorkerLog]) -> list[int]:
    return sorted({log.rank for log in logs})


class Copier:
    """Copies what is new in files, as it is or with a prefix before each line."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._offsets: dict[Path, int] = {}
        self._unfinished: dict[Path, tuple[bytes, bytes]] = {}
        """Lines without an end so far, behind their prefixes."""
        self._is_in_line = False

    @property
    def has_copied(self) -> bool:
        return bool(self._offsets)

    def copy(self, path: Path, prefix: bytes = b"") -> None:
        """All that was written since the last time; with a prefix, whole lines of it."""
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            file.seek(self._offsets.get(path, 0))
            while data := file.read(_CHUNK):
                self._offsets[path] = file.tell()
                self._emit(self._prefixed(path, data, prefix) if prefix else data)
        self._out.flush()

    def finish(self) -> None:
        """No more will come: write the lines that have no end, and give them one."""
        for prefix, line in self._unfinished.values():
            self._emit(prefix + line + b"\n")
        self._unfinished.clear()
        if self._is_in_line:
            self._emit(b"\n")
        self._out.flush()

    def _prefixed(self, path: Path, data: bytes, prefix: bytes) -> bytes:
        _, begun = self._unfinished.pop(path, (b"", b""))
        *lines, last = (begun + data).split(b"\n")
        if last:
            self._unfinished[path] = (prefix, last)
        return b"".join(prefix + line + b"\n" for line in lines)

    def _emit(self, data: bytes) -> None:
        if data:
            self._out.write(data)
            self._is_in_line = not data.endswith(b"\n")


@dataclass(slots=True)
class WorkersOutput:
    """What the workers of a run print; each call of `copy` goes on where the last one ended."""

    nodes: Path
    copier: Copier
    ranks: tuple[int, ...] = ()
    """All, if there are none here."""
    attempt: int | None = None
    """The latest and those that follow, unless told."""
    on_attempt: Callable[[int], None] = field(default=lambda attempt: None)
    """Called before the output of a later attempt."""
    _current: int | None = None

    def copy(self) -> None:
        logs = find_worker_logs(self.nodes)
        if not logs:
            return
        if self._current is None:
            self._current = attempts_of(logs)[-1] if self.attempt is None else self.attempt
        self._copy_attempt(logs, self._current)
        if self.attempt is not None:
            return
        for later in attempts_of(logs):
            if later > self._current:
                self.copier.finish()
                self.on_attempt(later)
                self._current = later
                self._copy_attempt(logs, later)

    def _copy_attempt(self, logs: Sequence[WorkerLog], attempt: int) -> None:
        ours = [log for log in logs if log.attempt == attempt]
        has_many = len(self.ranks) != 1 and len(ranks_of(ours)) > 1
        for log in ours:
            if not self.ranks or log.rank in self.ranks:
                prefix = f"[rank {log.rank}] ".encode() if has_many else b""
                for path in log.files():
                    self.copier.copy(path, prefix)


def has_reader(descriptor: int) -> bool:
    """Whether somebody still reads what is written here; not so after `| head`."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))
