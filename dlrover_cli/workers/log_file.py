"""A worker's log file: complete, or its beginning and its end; with the times of what is in it.

The times are beside the file, in ``stderr.times`` for ``stderr.log``: records of two little-endian
8-byte numbers, an offset and when what begins there was written (nanoseconds since 1970).
"""

import os
import struct
import time
from collections.abc import Collection
from pathlib import Path

from dlrover_cli.workers.nursery import write_all

KEPT_AT_EACH_END = 8 << 20
"""Bytes of a copy that nobody asked for."""

RECORD = struct.Struct("<QQ")
_CHUNK = 1 << 18
_SHORTEST_NS = 5_000_000
_LOOK_EVERY = 1.0


class LogFile:
    """A file that we write. Raises OSError where the disk does."""

    def __init__(self, path: str, times: str | None = None, *, limit: int | None = None) -> None:
        """``limit`` is what is kept of each end; there is none for a file that is complete."""
        self.fd = open_for_writing(path, readable=limit is not None)
        self._times = None if times is None else TimesFile(times)
        self._limit = limit
        self._size = 0
        self._end_of_head = 0
        self._begin_of_tail = 0
        self._left_out = 0

    def write(self, data: bytes) -> None:
        if self._times is not None:
            self._times.note(self._size, time.time_ns())
        write_all(self.fd, data)
        self._size += len(data)
        if self._limit is not None and self._size > 3 * self._limit:
            self._cut(self._limit)

    def close(self, keep: Collection[int] = ()) -> None:
        """Close the file, unless its descriptor is one of those that somebody else has now."""
        if self.fd not in keep:
            os.close(self.fd)
        if self._times is not None:
            self._times.close()

    def _cut(self, limit: int) -> None:
        """Leave out the middle. It has grown by as much as is kept, so that this is rare."""
        if not self._end_of_head:
            last = os.pread(self.fd, _CHUNK, limit - _CHUNK).rfind(b"\n")
            self._end_of_head = self._begin_of_tail = (
                limit - _CHUNK + last + 1 if last >= 0 else limit
            )
        begin = self._size - limit
        begin += os.pread(self.fd, _CHUNK, begin).find(b"\n") + 1
        self._left_out += begin - self._begin_of_tail
        remark = (
            f"[dlrover-run: {self._left_out:,} bytes are left out here; this copy has the first "
            f"and the last {limit >> 20} MiB, -r or -t keep everything]\n"
        ).encode()
        os.lseek(self.fd, self._end_of_head, os.SEEK_SET)
        write_all(self.fd, remark)
        for offset in range(begin, self._size, _CHUNK):
            write_all(self.fd, os.pread(self.fd, min(_CHUNK, self._size - offset), offset))
        self._begin_of_tail = self._end_of_head + len(remark)
        self._size = self._begin_of_tail + self._size - begin
        os.ftruncate(self.fd, self._size)
        if self._times is not None:
            self._times.cut(self._end_of_head, begin, self._begin_of_tail)


class TimesFile:
    """The times of one log file. What cannot be written is missed, and nothing else."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = open_for_writing(path, readable=True)
        except OSError:
            self._fd = -1
        self._last = 0

    def note(self, offset: int, time_ns: int) -> None:
        """What begins at this offset is written now; not every little piece needs a record."""
        if self._fd >= 0 and time_ns - self._last >= _SHORTEST_NS:
            self._last = time_ns
            self._put(RECORD.pack(offset, time_ns))

    def cut(self, end_of_head: int, old_begin: int, new_begin: int) -> None:
        """The file has lost its middle: what began at ``old_begin`` is at ``new_begin`` now."""
        if self._fd < 0:
            return
        size = os.lseek(self._fd, 0, os.SEEK_END)
        kept: list[tuple[int, int]] = []
        begun = 0
        for offset, time_ns in RECORD.iter_unpack(os.pread(self._fd, size, 0)):
            if offset < end_of_head:
                kept.append((offset, time_ns))
            elif offset <= old_begin:
                begun = time_ns
            else:
                kept.append((offset - old_begin + new_begin, time_ns))
        index = sum(offset < end_of_head for offset, _ in kept)
        kept.insert(index, (end_of_head, begun or self._last))
        os.lseek(self._fd, 0, os.SEEK_SET)
        os.ftruncate(self._fd, 0)
        self._put(b"".join(RECORD.pack(*record) for record in kept))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            self.close()


class WatchedFile:
    """A file that a worker writes by itself: its growth is looked at once in a while."""

    def __init__(self, path: str, times: str) -> None:
        self._path = path
        self._times = TimesFile(times)
        self._size = 0

    def look(self) -> None:
        try:
            status = os.stat(self._path)
        except OSError:
            return
        if status.st_size > self._size:
            self._times.note(self._size, status.st_mtime_ns)
            self._size = status.st_size

    def close(self) -> None:
        self.look()
        self._times.close()


class Watch:
    """Looks at all files that workers of one attempt write by themselves."""

    def __init__(self) -> None:
        self._files: list[WatchedFile] = []
        self._due = 0.0

    def add(self, path: str, times: str) -> None:
        self._files.append(WatchedFile(path, times))

    def next_look(self) -> float | None:
        return self._due if self._files else None

    def look(self) -> None:
        now = time.monotonic()
        if self._files and now >= self._due:
            self._due = now + _LOOK_EVERY
            for file in self._files:
                file.look()

    def close(self) -> None:
        for file in self._files:
            file.close()


def times_beside(log: str) -> str:
    """Where the times of a log file are."""
    return str(Path(log).with_suffix(".times"))


def open_for_writing(path: str, *, readable: bool = False) -> int:
    """In a directory that is the user's alone, such as the run's, the file is so too."""
    is_private = os.stat(os.path.dirname(path) or ".").st_mode & 0o077 == 0
    mode = 0o600 if is_private else 0o666
    access = os.O_RDWR if readable else os.O_WRONLY
    return os.open(path, access | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
