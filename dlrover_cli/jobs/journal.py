"""The events of a run's life, for several writers: each reads what the others wrote, then writes.

A lock on the file makes these two one act; it goes with the process that holds it. A last line
that was torn by a crash is not read, and is closed before another one is written.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.events import EventLog


class LifeJournal:
    """Open for whoever has something to tell.

    What cannot be written, since the disk is full, costs one line, and is written with the next
    event that can be.
    """

    def __init__(self, path: Path, run_id: str, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._run_id = run_id
        self._log = EventLog(path, run_id, on_problem)
        self._lock = threading.Lock()
        self._descriptor = _opened(path)
        self._offset = self._lines = 0
        self._is_torn = False
        self._read = Story()
        self._owed: list[dict[str, Any]] = []
        with self.alone():
            pass

    @property
    def story(self) -> Story:
        """As of the last look; inside of `alone`, of now."""
        story = self._read
        for event in self._owed:
            story = story.after(event)
        return story

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other `LifeJournal` writes meanwhile, and the story is up to date.

        A file system without locks costs the first of it. Not to be entered from a signal handler.
        """
        with self._lock, _locked(self._descriptor):
            self._catch_up()
            yield

    def append(self, kind: str, **data: Any) -> None:
        """Write one event; call it inside of `alone`."""
        if self._is_torn and self._descriptor is not None:
            with suppress(OSError):
                os.write(self._descriptor, b"\n")
            self._catch_up()
        self._owed.append({"kind": kind, "data": data, "time": time.time()})
        while self._owed and self._write(self._owed[0]):
            del self._owed[0]

    def _write(self, event: dict[str, Any]) -> bool:
        before = self._offset
        self._log.record(event["kind"], **event["data"])
        self._catch_up()
        if self._offset > before:
            return True
        self._log.close()  # it has said that it gives up; the run goes on, and so do we
        self._log = EventLog(self._path, self._run_id, lambda line: None)
        return False

    def close(self) -> None:
        with self._lock:
            self._log.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _catch_up(self) -> None:
        text = _read_from(self._descriptor, self._offset)
        whole = text[: text.rfind(b"\n") + 1]
        self._is_torn = len(whole) < len(text)
        self._offset += len(whole)
        self._lines += whole.count(b"\n")
        self._log.seq = self._lines
        self._read = _told(self._read, whole.splitlines())


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far somebody has read, and the story up to there; some runs go on for months."""

    offset: int = 0
    story: Story = field(default_factory=Story)

    def to_text(self) -> str:
        return json.dumps({"offset": self.offset, "story": self.story.to_json()})

    @classmethod
    def from_text(cls, text: str) -> Self:
        data = json.loads(text)
        return cls(data["offset"], Story.from_json(data["story"]))


def read_story(path: Path) -> Story:
    """What the file tells now. Raises OSError if it cannot be read."""
    return read_on(path, Bookmark()).story


def read_on(path: Path, bookmark: Bookmark) -> Bookmark:
    """Read from there to the last whole line. Raises OSError if the file cannot be read."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < bookmark.offset:
            bookmark = Bookmark()  # it is another file
        file.seek(bookmark.offset)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    story = _told(bookmark.story, whole.splitlines())
    return Bookmark(bookmark.offset + len(whole), story)


def _told(story: Story, lines: Iterable[bytes]) -> Story:
    for line in lines:
        # ValueError: torn once, or being written. RecursionError: none of ours.
        with suppress(ValueError, RecursionError):
            story = story.after(json.loads(line))
    return story


def _opened(path: Path) -> int | None:
    for flags in (os.O_RDWR | os.O_APPEND, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC)
    return None


def _read_from(descriptor: int | None, offset: int) -> bytes:
    if descriptor is None:
        return b""
    parts = []
    with suppress(OSError):
        while part := os.pread(descriptor, 1 << 20, offset):
            parts.append(part)
            offset += len(part)
    return b"".join(parts)


@contextmanager
def _locked(descriptor: int | None) -> Iterator[None]:
    is_held = False
    if descriptor is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_held = True
    try:
        yield
    finally:
        if is_held and descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
