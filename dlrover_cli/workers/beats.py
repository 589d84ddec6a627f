"""Reading how far the workers are: one small shared-memory page per worker, made by the agent."""

import contextlib
import fcntl
import mmap
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.workers.bootstrap.in_worker import page as layout
from dlrover_cli.workers.bootstrap.in_worker.page import is_alive

_PREFIX = "dlrover-beats-"
_SHARED_MEMORY = Path("/dev/shm")
_PHASES = {layout.START_UP: WorkerPhase.START_UP, layout.TRAINING: WorkerPhase.TRAINING}


@dataclass(frozen=True, slots=True)
class Beat:
    """What one worker's page said; times are ``time.monotonic_ns`` and 0 where there was none."""

    pid: int = 0
    """The process that beats; 0 as long as nothing of ours runs in the worker."""
    phase: WorkerPhase = WorkerPhase.UNKNOWN
    stack_signal: int = 0
    """The signal on which the worker dumps its stacks; 0 if it does not."""
    beats: int = 0
    """Outermost optimizer steps, of whatever optimizer."""
    steps: int = 0
    """Rounds of optimizer steps: one per iteration even where several optimizers take turns."""
    first_step_ns: int = 0
    step_ns: int = 0
    heartbeats: int = 0
    heartbeat_ns: int = 0
    prompt: int = 0
    """What a person does in it: `layout.AT_PROMPT` or `layout.WAITING`; 0 for nothing."""
    prompt_ns: int = 0
    """When a person last left it."""
    breakpoints: int = 0
    """How often it has come to one that nobody has asked for."""

    @property
    def last_ns(self) -> int:
        """When the worker last moved; 0 if it never did."""
        return max(self.step_ns, self.heartbeat_ns)

    @property
    def usual_step(self) -> float | None:
        """Seconds per step on average; None before the second one."""
        if self.steps < 2:
            return None
        return (self.step_ns - self.first_step_ns) / (self.steps - 1) / 1e9


class BeatPage:
    """The agent's side of one worker's page. It outlives the worker, and its last beat the page."""

    def __init__(self, path: Path) -> None:
        """Make the page. Raises OSError."""
        self.path = path
        content = layout.MAGIC_NUMBER.to_bytes(8, sys.byteorder).ljust(layout.SIZE, b"\0")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # In full: a hole would be filled when the worker beats, or not, if space is out.
            os.write(fd, content)
            self._map = mmap.mmap(fd, layout.SIZE)
        finally:
            os.close(fd)
        self._cells = memoryview(self._map).cast("Q")
        self._last: Beat | None = None

    def read(self) -> Beat:
        if self._last is None:
            with contextlib.suppress(ValueError):  # closed meanwhile, by another thread
                return self._read()
        return self._last or Beat()

    def _read(self) -> Beat:
        cells = self._cells
        return Beat(
            pid=cells[layout.PID],
            phase=_PHASES.get(cells[layout.PHASE], WorkerPhase.UNKNOWN),
            stack_signal=cells[layout.STACK_SIGNAL],
            beats=cells[layout.BEATS],
            steps=cells[layout.STEPS],
            first_step_ns=cells[layout.FIRST_STEP_NS],
            step_ns=cells[layout.STEP_NS],
            heartbeats=cells[layout.HEARTBEATS],
            heartbeat_ns=cells[layout.HEARTBEAT_NS],
            prompt=cells[layout.PROMPT],
            prompt_ns=cells[layout.PROMPT_NS],
            breakpoints=cells[layout.BREAKPOINTS],
        )

    def is_looked_into(self) -> bool:
        """Whether a person is busy with the worker; it may have died of that."""
        beat = self.read()
        return beat.prompt != 0 and is_alive(beat.pid)

    def lock(self) -> int | None:
        """A descriptor; until it is closed, the worker keeps its stack signal to itself.

        None if it is about to change it. Raises OSError.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return fd

    def close(self) -> None:
        """Release the page and remove its file. Safe to call again."""
        self._last = self.read()
        self._cells.release()
        self._map.close()
        self.path.unlink(missing_ok=True)


class BeatDirectory:
    """Where the pages of one agent live: in memory where possible, private, gone at its end.

    Not in the run directory: that may be on a network file system, and a worker must never wait
    for one in the middle of a step. The directory is locked while its agent lives, whichever
    container that is in; one whose agent was killed is removed by the next that comes along.
    """

    def __init__(self, base: Path | None = None) -> None:
        """Make the directory. Raises OSError."""
        base = base or _memory_directory()
        _remove_abandoned(base)
        # mkdtemp would leave a moment in which the directory is there and not yet locked.
        name = f"{_PREFIX}{os.getuid()}-{secrets.token_hex(6)}"
        unlocked = base / f".{name}"
        unlocked.mkdir(mode=0o700)
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(base / name)
        self._closed = False

    def create(self, name: str) -> BeatPage:
        """A new page; ``name`` must be new to this directory."""
        return BeatPage(self.path / name)

    def close(self) -> None:
        """Remove the directory with all pages in it. Safe to call again."""
        if not self._closed:
            self._closed = True
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def steps_done(beats: Mapping[int, Beat]) -> int | None:
    """Optimizer steps of the furthest worker; None where nobody counted."""
    return max((beat.steps for beat in beats.values()), default=0) or None


def own_beat_directories(base: Path) -> Iterable[Path]:
    """Those of this user's agents; one that nobody holds a lock on is abandoned."""
    return base.glob(f"{_PREFIX}{os.getuid()}-*")


def _memory_directory() -> Path:
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _remove_abandoned(base: Path) -> None:
    for directory in own_beat_directories(base):
        with contextlib.suppress(OSError):
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(fd)
