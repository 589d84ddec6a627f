"""The output of a run's workers: files that may still grow, by attempt and rank, line by line."""

import os
import select
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dlrover_cli.workers.log_file import RECORD, times_beside

STREAMS = ("stdout", "stderr")
_CHUNK = 1 << 16
# A longer line comes in pieces.
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class WorkerLog:
    """The directory of one rank in one attempt."""

    attempt: int
    rank: int
    path: Path

    def files(self) -> list[tuple[str, Path]]:
        """The streams that were kept so far."""
        paths = ((stream, self.path / f"{stream}.log") for stream in STREAMS)
        return [(stream, path) for stream, path in paths if path.exists()]


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


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one stream of one worker, or a part of it."""

    log: WorkerLog
    stream: str
    time_ns: int
    """When it was written, as far as that was taken down; 0 if it was not."""
    text: bytes
    """With its end, if it has one."""

    @property
    def order(self) -> tuple[int, int, str]:
        """What comes first: by time, and at one time as people would read it."""
        return self.time_ns, self.log.rank, "" if self.stream == STREAMS[0] else self.stream


class LineReader:
    """Reads one file on; each line once, with the time at which it was written."""

    def __init__(self, log: WorkerLog, stream: str, path: Path) -> None:
        self._log = log
        self._stream = stream
        self._path = path
        self._times = _Times(path)
        self._offset = 0
        self._rest = b""
        self._is_stale = False
        """Whether the rest was there at the last look already."""

    @property
    def has_read(self) -> bool:
        return self._offset > 0

    def lines(self) -> Iterator[Line]:
        """The lines that have an end by now."""
        self._is_stale = bool(self._rest)
        with suppress(FileNotFoundError), self._path.open("rb", buffering=0) as file:
            self._find_place(os.fstat(file.fileno()).st_size)
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                begin = self._offset - len(self._rest)
                self._offset += len(data)
                self._is_stale = False
                *whole, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > _LONGEST_LINE:
                    whole, self._rest = [*whole, self._rest], b""
                    whole[-1] += b"\n"
                for text in whole:
                    yield self._line(begin, text + b"\n")
                    begin += len(text) + 1

    def unfinished(self) -> Line | None:
        """What stands without an end, once it has been so for two looks."""
        return self.rest() if self._is_stale else None

    def rest(self) -> Line | None:
        """What stands without an end; it is not shown again."""
        if not self._rest:
            return None
        rest, self._rest = self._rest, b""
        return self._line(self._offset - len(rest), rest)

    def _line(self, offset: int, text: bytes) -> Line:
        return Line(self._log, self._stream, self._times.at(offset), text)

    def _find_place(self, size: int) -> None:
        """In a bounded file that has lost its middle meanwhile: go on at its end."""
        if size < self._offset:
            self._offset = size
            self._rest = b""
            self._times = _Times(self._path)


class _Times:
    """The times beside a log file, asked for offsets that only grow."""

    def __init__(self, log: Path) -> None:
        self._path = Path(times_beside(str(log)))
        self._position = 0
        self._records: deque[tuple[int, int]] = deque()
        self._current = 0

    def at(self, offset: int) -> int:
        """When what stands there was written; 0 if nobody knows."""
        while (self._records or self._read()) and self._records[0][0] <= offset:
            self._current = max(self._current, self._records.popleft()[1])
        return self._current

    def _read(self) -> bool:
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(_CHUNK)
            data = data[: len(data) // RECORD.size * RECORD.size]
            self._position += len(data)
            self._records.extend(RECORD.iter_unpack(data))
        return bool(self._records)


class Copier:
    """Copies what is new in a file, as it is."""

    def __init__(self, path: Path, out: BinaryIO) -> None:
        self._path = path
        self._out = out
        self._offset = 0
        self._is_in_line = False

    @property
    def has_read(self) -> bool:
        return self._offset > 0

    def copy(self) -> None:
        """All that was written since the last time."""
        with suppress(FileNotFoundError), self._path.open("rb", buffering=0) as file:
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset = file.tell()
                self._out.write(data)
                self._is_in_line = not data.endswith(b"\n")
        self._out.flush()

    def finish(self) -> None:
        """No more will come: give the last line an end."""
        if self._is_in_line:
            self._out.write(b"\n")
        self._out.flush()


def has_reader(descriptor: int) -> bool:
    """Whether somebody still reads what is written here; not so after `| head`."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))
