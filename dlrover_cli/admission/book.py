"""The book of all runs that wait for a place or hold one: one file, read and written under a lock.

<state>/
    queue.lock      who holds it holds a session, or changes the book; its content says who that is
    queue.json      the book
    queue.stopping  who holds it ends the jobs of runners that were killed
    queue.giving    who holds it gives places back because somebody has looked
    runs/<id>/wake  a pipe that wakes the runner of a run that waits

A place is in the book before anybody outside is told of it, and until everybody was told that it is
free: whoever is killed in between leaves it there, and the next session gives it back.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from dlrover_cli.errors import LaunchError
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import write_json_atomically

SCHEMA_VERSION = 1
_NAME = "queue.json"
_LOCK = "queue.lock"


@dataclass(frozen=True, slots=True)
class Entry:
    """One run that waits for a place or holds one, or a place that was held."""

    run_id: str
    name: str
    config: str
    """The extender file that it was submitted with; runs of one file share its queues."""
    queue: str
    priority: int
    submitted: float
    resources: Mapping[str, float]
    owner: ProcessIdentity
    is_enqueued: bool = False
    node: str | None = None
    place: str = ""
    """The name of its hold on the node, by which services know what they hear twice."""
    is_releasing: bool = False
    """It was told to make room."""
    reason: str = ""
    """Why it waits, or why it has to make room."""
    placed: float | None = None
    """When it got its place."""
    ran: float = 0.0
    """How many seconds it had a place before, and lost it again: that was no waiting."""
    is_owed_room: bool = False
    """Another one was told to make room for it."""

    def waited(self, now: float) -> float:
        """How long it waits, or had waited when it got its place; in seconds."""
        until = now if self.placed is None else self.placed
        return max(0.0, until - self.submitted - self.ran)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "owner": ProcessIdentity.from_json(data["owner"])})


@dataclass(frozen=True, slots=True)
class Book:
    """All entries by run id, and when each file's last session was."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    ended: tuple[Entry, ...] = ()
    """Places that are free again, and not everybody was told; the run may wait for its next."""
    sessions: Mapping[str, float] = field(default_factory=dict)

    def with_entry(self, entry: Entry) -> "Book":
        return replace(self, entries={**self.entries, entry.run_id: entry})

    def without(self, run_id: str) -> "Book":
        """The run is gone; if it had a place, that is told to all by the next session."""
        entry = self.entries.get(run_id)
        left = {key: each for key, each in self.entries.items() if key != run_id}
        ended = () if entry is None or entry.node is None else (entry,)
        return replace(self, entries=left, ended=(*self.ended, *ended))

    def heard(self, places: Set[str]) -> "Book":
        """All know that these places are free."""
        return replace(self, ended=tuple(each for each in self.ended if each.place not in places))

    def of(self, config: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.config == config]


def read_book(state: Path) -> Book:
    """As it was last written; whoever looks only needs no lock. Raises OSError or LaunchError."""
    return _read(state / _NAME)


class OpenBook:
    """The book while its lock is held; every change is on the disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._book = _read(path)

    @property
    def book(self) -> Book:
        return self._book

    def write(self, book: Book) -> None:
        """Raises OSError, and then the book is as before."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "entries": [asdict(entry) for entry in book.entries.values()],
            "ended": [asdict(entry) for entry in book.ended],
            "sessions": dict(book.sessions),
        }
        write_json_atomically(self._path, document)
        self._book = book


@contextmanager
def opened_book(
    state: Path, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[OpenBook]:
    """Take the lock, which goes with the process that holds it; if need be, wait ``waiting``.

    Raises OSError or LaunchError.
    """
    descriptor = os.open(state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, waiting)
        with _signed(descriptor):
            yield OpenBook(state / _NAME)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the lock of the book."""

    process: ProcessIdentity
    since: float


def holder_of(state: Path) -> Holder | None:
    """None if nobody of this host does, or has not said so yet."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads((state / _LOCK).read_bytes())
        holder = Holder(ProcessIdentity.from_json(document["process"]), float(document["since"]))
        return holder if holder.process.is_alive() else None
    return None


def _take(descriptor: int, waiting: Callable[[], AbstractContextManager[None]]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with waiting():
            fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def _signed(descriptor: int) -> Iterator[None]:
    """Those who wait want to know for whom; on a full disk they do not."""
    document = {"process": ProcessIdentity.own().to_json(), "since": time.time()}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(document).encode(), 0)
    try:
        yield
    finally:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Whether nobody else is inside.

    Who was inside looks once more when he has left: whoever came meanwhile has gone, and may have
    seen what he had not.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _read(path: Path) -> Book:
    try:
        document = json.loads(path.read_bytes())
        entries = [Entry.from_json(each) for each in document["entries"]]
        ended = tuple(Entry.from_json(each) for each in document["ended"])
        by_id = {entry.run_id: entry for entry in entries}
        return Book(by_id, ended, dict(document["sessions"]))
    except FileNotFoundError:
        return Book()
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(
            f"{path} is not what was written there: {error}",
            hint=f"when no job of a queue runs any more, remove {path}",
        ) from error
