"""Where a worker's stdout and stderr go: straight on, into a file, or through us to several places.

A stream that needs no copy is handed to the worker as it is. One that is teed, or kept for the
verdict, goes through a pipe (a pseudo-terminal where ours is a terminal, so that colours and
progress bars stay as they were) and one pump thread per attempt copies it. A disk that fills up
costs the file, never the worker or the console.
"""

import contextlib
import fcntl
import os
import selectors
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dlrover_cli.workers.nursery import Relay, write_all

_CHUNK = 1 << 16
_TAIL_BYTES = 1 << 16
# More than a pipe holds: reading this much gets all that an ended worker wrote, even while
# something that it left behind keeps writing.
_DRAIN_BYTES = 1 << 20
# A longer line goes out in pieces, so that a worker that never ends one cannot fill our memory.
_LONGEST_LINE = 1 << 20
# A console that accepts nothing (a stopped terminal) must not hold up the end, or a verdict.
_FINISH_SECONDS = 5.0
_TAIL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Lines that contain any of ``needles`` are also written to the shared file at ``path``."""

    path: str
    needles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The destinations of one stream of one worker."""

    file: str | None = None
    console: int | None = None
    prefix: str = ""
    line_filter: LineFilter | None = None
    keep_tail: bool = False

    @property
    def needs_pump(self) -> bool:
        return self.keep_tail or (self.file is not None and self.console is not None)


@dataclass(frozen=True, slots=True)
class WorkerStreams:
    """Both output streams of one worker."""

    stdout: StreamPlan
    stderr: StreamPlan


@dataclass(slots=True)
class _Route:
    source: int
    plan: StreamPlan
    file: int | None
    filtered: int | None
    tail: bytearray = field(default_factory=bytearray)
    line: bytearray = field(default_factory=bytearray)
    line_begun: bool = False
    """Whether the first piece of the line has gone out already."""
    last: float = 0.0
    """When something came, on ``time.monotonic``; 0 if nothing did."""


def fill_standard_descriptors() -> None:
    """Open /dev/null as whichever of 0, 1 and 2 is closed.

    Otherwise a journal or a socket of ours would get such a number and be a worker's stdin or
    stdout. Has to come before anything else is opened.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


class StreamPump:
    """Copies the streams of one attempt's workers. Owns its thread, its pipes and its files."""

    def __init__(self, on_problem: Callable[[str], None]) -> None:
        self._on_problem = on_problem
        self._routes: dict[tuple[int, str], _Route] = {}
        self._filters: dict[str, int] = {}
        self._direct: dict[tuple[int, str], str] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._wanted: deque[tuple[_Route, threading.Event]] = deque()
        self._finishing = False
        self._thread: threading.Thread | None = None
        self._reported: set[str] = set()

    def open(self, local_rank: int, name: str, plan: StreamPlan) -> tuple[int, bool]:
        """Return the descriptor for the worker, and whether the caller must close its copy."""
        if plan.needs_pump:
            return self._open_pumped(local_rank, name, plan), True
        if plan.file is not None:
            self._direct[local_rank, name] = plan.file
            return _open_for_writing(plan.file), True
        if plan.console is not None:
            return plan.console, False
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), True

    def start(self) -> None:
        """Begin copying, if anything has to be copied."""
        if self._routes:
            self._thread = threading.Thread(target=self._run, name="worker-streams", daemon=True)
            self._thread.start()

    def tail(self, local_rank: int, name: str) -> str | None:
        """The last 64 KiB that were written; None if the stream does not pass through here."""
        route = self._routes.get((local_rank, name))
        if route is None:
            return None
        if self._thread is not None and self._thread.is_alive():
            copied = threading.Event()
            self._wanted.append((route, copied))
            os.write(self._wake_write, b"\0")
            copied.wait(_TAIL_SECONDS)
        return bytes(route.tail[-_TAIL_BYTES:]).decode("utf-8", "replace")

    def last_output(self, local_rank: int) -> float | None:
        """When a worker last wrote to a stream that is pumped or goes to a log file.

        On ``time.monotonic``. None if it has not, or none of its streams can be observed.
        """
        pumped = [route.last for (rank, _), route in self._routes.items() if rank == local_rank]
        direct = [path for (rank, _), path in self._direct.items() if rank == local_rank]
        files = [_written_at(path) for path in direct]
        return max([*pumped, *files], default=0.0) or None

    def finish(self) -> list[Relay]:
        """Copy what has been written and stop; hand over the streams that somebody still holds."""
        if self._thread is not None:
            self._finishing = True
            os.write(self._wake_write, b"\0")
            self._thread.join(_FINISH_SECONDS)
            if self._thread.is_alive():
                return []  # stuck at the console; its descriptors stay open for it
        held = [_held(route) for route in self._routes.values() if route.source >= 0]
        self._close_files(keep={fd for relay in held for fd in relay.descriptors()})
        return held

    def _open_pumped(self, local_rank: int, name: str, plan: StreamPlan) -> int:
        source, sink = _open_pipe_like(plan.console)
        os.set_blocking(source, False)
        file = None if plan.file is None else self._try_open(plan.file)
        filtered = None if plan.line_filter is None else self._open_filter(plan.line_filter.path)
        route = _Route(source, plan, file, filtered)
        self._routes[local_rank, name] = route
        self._selector.register(source, selectors.EVENT_READ, route)
        return sink

    def _open_filter(self, path: str) -> int | None:
        if path not in self._filters:
            fd = self._try_open(path)
            if fd is None:
                return None
            self._filters[path] = fd
        return self._filters[path]

    def _try_open(self, path: str) -> int | None:
        try:
            return _open_for_writing(path)
        except OSError as error:
            self._report(path, error)
            return None

    # ---- the pump's own thread -----------------------------------------------------------------

    def _run(self) -> None:
        while not self._finishing:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._answer_wanted()
                else:
                    self._copy(key.data, _CHUNK)
        for route in self._routes.values():
            self._copy(route, _DRAIN_BYTES)
            self._flush_line(route)
        self._answer_wanted()

    def _answer_wanted(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, _CHUNK)
        while self._wanted:
            route, copied = self._wanted.popleft()
            self._copy(route, _DRAIN_BYTES)
            copied.set()

    def _copy(self, route: _Route, most: int) -> None:
        """Copy what is there, up to about ``most`` bytes; close the route at the stream's end."""
        while route.source >= 0 and most > 0:
            try:
                chunk = os.read(route.source, _CHUNK)
            except BlockingIOError:
                return
            except OSError:  # a pseudo-terminal reports its last writer's end as EIO
                chunk = b""
            if not chunk:
                self._end(route)
                return
            most -= len(chunk)
            self._deliver(route, chunk)

    def _end(self, route: _Route) -> None:
        self._flush_line(route)
        self._selector.unregister(route.source)
        os.close(route.source)
        route.source = -1

    def _deliver(self, route: _Route, chunk: bytes) -> None:
        route.last = time.monotonic()
        route.tail += chunk
        if len(route.tail) > 2 * _TAIL_BYTES:
            del route.tail[:-_TAIL_BYTES]
        if route.file is not None and not self._write_file(route.file, chunk, route.plan.file):
            os.close(route.file)
            route.file = None
        if route.plan.prefix or route.filtered is not None:
            self._write_lines(route, list(_whole_lines(route, chunk)))
        elif route.plan.console is not None:
            _write_console(route.plan.console, chunk)

    def _flush_line(self, route: _Route) -> None:
        if route.line:
            self._write_lines(route, [_begun(route, bytes(route.line))])
            route.line.clear()

    def _write_lines(self, route: _Route, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        if route.plan.console is not None:
            _write_console(route.plan.console, b"".join(lines))
        if route.filtered is None or route.plan.line_filter is None:
            return
        needles = [needle.encode() for needle in route.plan.line_filter.needles]
        start = len(route.plan.prefix.encode())
        kept = [line for line in lines if any(line.find(needle, start) >= 0 for needle in needles)]
        if kept and not self._write_file(
            route.filtered, b"".join(kept), route.plan.line_filter.path
        ):
            route.filtered = None

    def _write_file(self, fd: int, data: bytes, path: str | None) -> bool:
        try:
            write_all(fd, data)
        except OSError as error:
            self._report(path or "", error)
            return False
        return True

    def _report(self, path: str, error: OSError) -> None:
        if path not in self._reported:
            self._reported.add(path)
            self._on_problem(
                f"cannot write the log {path}: {error.strerror}; the job goes on without it"
            )

    def _close_files(self, keep: set[int]) -> None:
        opened = [self._wake_read, self._wake_write, *self._filters.values()]
        for route in self._routes.values():
            opened += [fd for fd in (route.source, route.file) if fd is not None and fd >= 0]
        self._selector.close()
        for fd in set(opened) - keep:
            os.close(fd)


def _whole_lines(route: _Route, chunk: bytes) -> Iterator[bytes]:
    """The lines that the chunk completes, each with its prefix; the rest stays with the route."""
    *whole, rest = chunk.split(b"\n")
    for line in whole:
        yield _begun(route, bytes(route.line) + line + b"\n")
        route.line.clear()
        route.line_begun = False
    route.line += rest
    if len(route.line) > _LONGEST_LINE:
        yield _begun(route, bytes(route.line))
        route.line.clear()


def _begun(route: _Route, piece: bytes) -> bytes:
    """A line, or a piece of one; the first piece gets the prefix."""
    prefix = b"" if route.line_begun else route.plan.prefix.encode()
    route.line_begun = True
    return prefix + piece


def _held(route: _Route) -> Relay:
    """A stream without its pump. A teed one goes on in its file only, as under torchrun."""
    targets = [] if route.file is None else [route.file]
    if route.plan.console is not None and not route.plan.prefix:
        with contextlib.suppress(OSError):
            targets.append(os.dup(route.plan.console))
    return Relay(route.source, targets)


def _written_at(path: str) -> float:
    """When a log file last grew, on ``time.monotonic``; 0 if it is empty."""
    try:
        status = os.stat(path)
    except OSError:
        return 0.0
    return time.monotonic() - (time.time() - status.st_mtime) if status.st_size else 0.0


def _open_for_writing(path: str) -> int:
    """In a directory that is the user's alone, such as the run's, the file is so too."""
    is_private = os.stat(os.path.dirname(path) or ".").st_mode & 0o077 == 0
    mode = 0o600 if is_private else 0o666
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)


def _open_pipe_like(console: int | None) -> tuple[int, int]:
    """A pipe, or a raw pseudo-terminal of the same size where the console is a terminal."""
    if console is None or not os.isatty(console):
        return os.pipe2(os.O_CLOEXEC)
    try:
        source, sink = os.openpty()
    except OSError:  # none left, or none in this container
        return os.pipe2(os.O_CLOEXEC)
    mode = termios.tcgetattr(sink)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(sink, termios.TCSANOW, mode)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(console, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(sink, termios.TIOCSWINSZ, size)
    return source, sink


def _write_console(fd: int, data: bytes) -> None:
    # Nobody reads the console any more; the worker would have got SIGPIPE, the files go on.
    with contextlib.suppress(OSError):
        write_all(fd, data)
