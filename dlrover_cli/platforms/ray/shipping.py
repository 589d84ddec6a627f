"""Output and files of agents on their way to the manager: kept in the run directory, and shown.

Where a node shares no file system with the manager, its part of the run directory is brought over
piece by piece. What agents and workers print then comes from files in either case.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_LOOK_SECONDS = 0.2
_CHUNK = 1 << 16
_JOIN_SECONDS = 10.0


class Shipment:
    """The manager's copy of what one agent wrote elsewhere."""

    def __init__(self, run_directory: Path, on_problem: Callable[[str], None]) -> None:
        self._root = run_directory
        self._on_problem = on_problem
        self.seen: dict[str, tuple[int, int]] = {}
        """Inode and number of bytes of each file, by its path below the run directory."""

    def take(self, parts: Sequence[tuple[str, int, int, bytes]]) -> None:
        """Append what has come; a file that begins anew takes the place of the old one."""
        for name, inode, offset, data in parts:
            path = self._root / name
            if not path.resolve().is_relative_to(self._root.resolve()):
                continue  # nothing of ours is called so
            try:
                self._write(path, offset, data)
            except OSError as error:
                self._on_problem(f"cannot write {path}: {error.strerror}")
            self.seen[name] = (inode, offset + len(data))

    def _write(self, path: Path, offset: int, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if offset == 0 else 0)
        with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:
            file.seek(offset)
            file.write(data)


class Showing:
    """Copies what agents print to our own stdout and stderr, in a thread, until it is closed."""

    def __init__(self, agents: Path) -> None:
        self._agents = agents
        self._streams = (("stdout.log", sys.stdout), ("stderr.log", sys.stderr))
        self._offsets: dict[Path, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ray-output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Show what is left and end the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._show(whole_lines=True)
        self._show(whole_lines=False)

    def _show(self, *, whole_lines: bool) -> None:
        for name, stream in self._streams:
            if stream is None:
                continue
            for path in sorted(self._agents.glob(f"*/{name}")):
                # Closed, full, or a pipe that nobody reads: no reason to end a training.
                with suppress(OSError, ValueError):
                    self._copy(path, stream.buffer, whole_lines)

    def _copy(self, path: Path, out: BinaryIO, whole_lines: bool) -> None:
        """Whole lines only while more may come, since those of several agents must not mix."""
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            while data := file.read(_CHUNK):
                if whole_lines and len(data) < _CHUNK:
                    data = data[: data.rfind(b"\n") + 1]
                if not data:
                    return
                out.write(data)
                self._offsets[path] = self._offsets.get(path, 0) + len(data)
                file.seek(self._offsets[path])
        out.flush()
