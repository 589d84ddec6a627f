"""The events of a run's life, for several writers: each reads what the others wrote, then writes.

A lock on the file makes these two one act; it goes with the process that holds it. A last line
that was torn by a crash is not read, and closed before another one is written.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.events import EventLog


class LifeJournal:
    """Opened for writing by whoever has something to tell; never raises. Not across a fork."""

    def __init__(self, path: Path, run_id: str, on_problem: Callable[[str], None]) -> None:
        self._log = EventLog(path, run_id, on_problem)
        self._lock = threading.Lock()
        self._descriptor = _opened(path)
        self._offset = self._lines = 0
        self.story = Story()
        """As of the last look, which is now for those inside of `alone`."""
        with self.alone():
            pass

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile, and the story is up to date.

        A file system without locks costs the first of it.
        """
        with self._lock, _locked(self._descriptor):
            self._catch_up()
            yield

    def append(self, kind: str, **data: Any) -> None:
        """Write one event; call it inside of `alone`."""
        before = self._offset
        self._log.record(kind, **data)
        self._catch_up()
        if self._offset == before:  # it could not be written, and the run goes on all the same
            self.story = self.story.after({"kind": kind, "data": data, "time": time.time()})

    def close(self) -> None:
        with self._lock:
            self._log.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _catch_up(self) -> None:
        text = _read_from(self._descriptor, self._offset)
        whole, newline, torn = text.rpartition(b"\n")
        if torn and self._descriptor is not None:
            with suppress(OSError):
                os.lseek(self._descriptor, 0, os.SEEK_END)
                os.write(self._descriptor, b"\n")
                whole, newline, torn = text, b"\n", b""
        lines = whole.split(b"\n") if newline else []
        self._offset += len(whole) + len(newline)
        self._lines += len(lines)
        self._log.seq = self._lines
        self.story = told(self.story, lines)


def read_story(path: Path) -> Story:
    """What the file tells now. Raises OSError if it cannot be read."""
    return told(Story(), path.read_bytes().split(b"\n"))


def told(story: Story, lines: list[bytes]) -> Story:
    for line in lines:
        with suppress(ValueError):  # torn once, and closed by the next writer
            story = story.after(json.loads(line))
    return story


def _opened(path: Path) -> int | None:
    for flags in (os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC)
    return None


def _read_from(descriptor: int | None, offset: int) -> bytes:
    parts = []
    with suppress(OSError):
        while descriptor is not None:
            part = os.pread(descriptor, 1 << 20, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
    return b"".join(parts)


@contextmanager
def _locked(descriptor: int | None) -> Iterator[None]:
    if descriptor is None:
        yield
        return
    is_held = False
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        is_held = True
    try:
        yield
    finally:
        if is_held:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
