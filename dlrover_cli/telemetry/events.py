"""The append-only journal of one agent: one JSON object per line, the truth about a run.

Each line has ``schema_version, seq, time, run_id, node_rank, attempt, kind, data``. A line is
written with one call, so that a reader never sees half of one. A journal that cannot be written
costs the journal and one line on stderr, never the job.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.documents import plain

SCHEMA_VERSION = 1

Recorder = Callable[..., None]
"""Called as ``record(kind, **data)`` from any thread; never raises."""


def record_nothing(kind: str, **data: Any) -> None:
    """The recorder of a run that keeps no journal."""


class EventLog:
    """Writes the events of one agent. Safe to call from any thread; never raises."""

    def __init__(self, path: Path, run_id: str, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._run_id = run_id
        self._on_problem = on_problem
        self._lock = threading.Lock()
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

    def record(self, kind: str, **data: Any) -> None:
        """Append one event."""
        with self._lock:
            if self._fd is None:
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
            line = (json.dumps(event) + "\n").encode("ascii")
            try:
                _write_whole(self._fd, line)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Close the file; later events are dropped."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _give_up(self, error: OSError) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._on_problem(f"cannot write events to {self._path}: {error.strerror}; going on without")


def _write_whole(fd: int, line: bytes) -> None:
    """Append the line, or nothing of it: what fits on a disk that fills up may be half a line."""
    written = os.write(fd, line)
    if written < len(line):
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
