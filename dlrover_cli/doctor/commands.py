"""Commands that a check runs: each with a deadline, and none outlives whoever asked for it."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dlrover_cli.words import one_line

_GRACE = 2


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    status: int | None
    """Negative for a signal; None if it did not end in time, and was killed."""
    out: str = ""
    err: str = ""

    @property
    def last_words(self) -> str:
        """The last line that it wrote to stderr: of a traceback, what was raised."""
        return one_line(self.err.strip().rpartition("\n")[2])


class Commands:
    """Runs them, from any thread. `close` ends those that still run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False

    def run(self, command: Sequence[str], environ: Mapping[str, str], seconds: float) -> Ran:
        """Wait for its end, or kill its whole session when the time is up. Raises OSError."""
        with self._started(_limited(command, seconds), environ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                return Ran(None)
        return Ran(process.returncode, out, err)

    def close(self) -> None:
        """Kill what runs; what is started from now on ends at once. Safe to call again."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            _kill(process)

    @contextmanager
    def _started(
        self, command: Sequence[str], environ: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            with self._lock:
                self._running.add(process)
                if self._closed:
                    _kill(process)
            try:
                yield process
            finally:
                _kill(process)  # it may have left children, which hold the pipes
                with self._lock:
                    self._running.discard(process)


def _limited(command: Sequence[str], seconds: float) -> list[str]:
    """Under `timeout`, which ends it even if we are killed meanwhile."""
    timeout = shutil.which("timeout")
    prefix = [timeout, "--signal=KILL", f"{seconds + _GRACE:g}"] if timeout else []
    return [*prefix, *command]


def _kill(process: "subprocess.Popen[str]") -> None:
    """The whole group. Right after its end the number is nobody else's yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
