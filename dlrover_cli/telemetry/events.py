"""The append-only journal of one agent: one JSON object per line, the truth about a run.

Each line has ``schema_version, seq, time, run_id, node_rank, attempt, kind, data``. A line is
written with one call, so that a reader never sees half of one. A journal that cannot be written
costs the journal and one line on stderr, never the job.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.documents import plain
from dlrover_cli.telemetry.whole_writes import append_line

SCHEMA_VERSION = 1

Recorder = Callable[..., None]
"""Called as ``record(kind, **data)`` from any thread; never raises."""

Event = dict[str, Any]
"""One event as it stands in the journal."""

Listener = Callable[[Event], None]
"""Gets each event in the thread that records it: it must return at once, and record nothing."""


def record_nothing(kind: str, **data: Any) -> None:
    """The recorder of a run that keeps no journal."""


class EventLog:
    """Writes the events of one agent. Safe to call from any thread; never raises."""

    def __init__(self, path: Path, run_id: str, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._run_id = run_id
        self._on_problem = on_problem
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self.seq = 0
        """Of the last event; a file with several writers has each set it before it writes."""
        self._fd: int | None = None
        self.node_rank: int | None = None
        self.attempt: int | None = None
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            self.seq = path.read_bytes().count(b"\n")  # a resumed run goes on counting
        except OSError as error:
            self._give_up(error)

    def subscribe(self, listener: Listener) -> None:
        """Show ``listener`` every event from now on, in order, even those that cannot be kept."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def record(self, kind: str, **data: Any) -> None:
        """Append one event and show it to the listeners."""
        with self._lock:
            if self._fd is None and not self._listeners:
                return
            self.seq += 1
            event = {
                "schema_version": SCHEMA_VERSION,
                "seq": self.seq,
                "time": time.time(),
                "run_id": self._run_id,
                "node_rank": self.node_rank,
                "attempt": self.attempt,
                "kind": kind,
                "data": plain(data),
            }
            self._append(event)
            for listener in self._listeners:
                with suppress(Exception):  # a view of the run must not become its problem
                    listener(event)

    def close(self) -> None:
        """Close the file; later events are dropped."""
        with self._lock:
            self._listeners = ()
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _append(self, event: Event) -> None:
        if self._fd is None:
            return
        line = (json.dumps(event) + "\n").encode("ascii")
        try:
            append_line(self._fd, line)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._on_problem(f"cannot write events to {self._path}: {error.strerror}; going on without")


def read_events(journal: Path, kinds: Iterable[str] = ()) -> Iterator[Event]:
    """What stands in a journal, as far as it can be read; with kinds, those events alone."""
    marks = [f'"kind": "{kind}"'.encode() for kind in kinds]
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        if marks and not any(mark in line for mark in marks):
            continue
        try:
            event = json.loads(line)
        except ValueError:  # torn by a crash
            continue
        if isinstance(event, dict):
            yield event
