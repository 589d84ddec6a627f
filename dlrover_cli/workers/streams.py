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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_CHUNK = 1 << 16
_TAIL_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20


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
    partial: bytearray = field(default_factory=bytearray)


class StreamPump:
    """Copies the streams of one attempt's workers. Owns its thread, its pipes and its files."""

    def __init__(self, on_problem: Callable[[str], None]) -> None:
        self._on_problem = on_problem
        self._routes: dict[tuple[int, str], _Route] = {}
        self._filters: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        self._reported: set[str] = set()

    def open(self, local_rank: int, name: str, plan: StreamPlan) -> tuple[int, bool]:
        """Return the descriptor for the worker, and whether the caller must close its copy."""
        if plan.needs_pump:
            return self._open_pumped(local_rank, name, plan), True
        if plan.file is not None:
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
        """The last 64 KiB of a pumped stream; None if the stream does not pass through here."""
        route = self._routes.get((local_rank, name))
        return None if route is None else bytes(route.tail).decode("utf-8", "replace")

    def finish(self) -> None:
        """Copy what has been written, then stop; whoever still holds a pipe is cut off."""
        if self._thread is not None:
            os.write(self._wake_write, b"\0")
            # A console that accepts nothing (a stopped terminal) must not hold up the end.
            self._thread.join(timeout=5.0)
        if self._thread is None or not self._thread.is_alive():
            self._close_files()

    def _open_pumped(self, local_rank: int, name: str, plan: StreamPlan) -> int:
        file = None if plan.file is None else self._try_open(plan.file)
        filtered = None
        if plan.line_filter is not None:
            filtered = self._filters.get(plan.line_filter.path)
            if filtered is None:
                filtered = self._try_open(plan.line_filter.path)
                if filtered is not None:
                    self._filters[plan.line_filter.path] = filtered
        source, sink = _open_pipe_like(plan.console)
        os.set_blocking(source, False)
        route = _Route(source, plan, file, filtered)
        self._routes[local_rank, name] = route
        self._selector.register(source, selectors.EVENT_READ, route)
        return sink

    def _try_open(self, path: str) -> int | None:
        try:
            return _open_for_writing(path)
        except OSError as error:
            self._report(path, error)
            return None

    def _run(self) -> None:
        open_routes = len(self._routes)
        finishing = False
        while open_routes and not finishing:
            for key, _ in self._selector.select():
                if key.data is None:
                    finishing = True
                elif not self._copy_once(key.data):
                    self._end(key.data)
                    open_routes -= 1
        if finishing:
            for route in self._routes.values():
                if route.source >= 0:
                    self._drain(route)
                    self._end(route)

    def _copy_once(self, route: _Route) -> bool:
        """Copy one chunk. False at the end of the stream."""
        try:
            chunk = os.read(route.source, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # a pseudo-terminal reports its last writer's end as EIO
            return False
        if not chunk:
            return False
        self._deliver(route, chunk)
        return True

    def _drain(self, route: _Route) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(route.source, _CHUNK):
                self._deliver(route, chunk)

    def _deliver(self, route: _Route, chunk: bytes) -> None:
        route.tail += chunk
        if len(route.tail) > 2 * _TAIL_BYTES:
            del route.tail[:-_TAIL_BYTES]
        if route.file is not None and not self._write_file(route.file, chunk, route.plan.file):
            route.file = None
        if route.plan.prefix or route.filtered is not None:
            self._deliver_lines(route, chunk)
        elif route.plan.console is not None:
            _write_console(route.plan.console, chunk)

    def _deliver_lines(self, route: _Route, chunk: bytes) -> None:
        route.partial += chunk
        lines = route.partial.split(b"\n")
        route.partial = lines.pop()
        if len(route.partial) > _LONGEST_LINE:
            lines.append(route.partial)
            route.partial = bytearray()
        self._write_lines(route, [bytes(line) + b"\n" for line in lines])

    def _write_lines(self, route: _Route, lines: Sequence[bytes]) -> None:
        prefix = route.plan.prefix.encode()
        if route.plan.console is not None and lines:
            _write_console(route.plan.console, b"".join(prefix + line for line in lines))
        if route.filtered is None or route.plan.line_filter is None:
            return
        needles = [needle.encode() for needle in route.plan.line_filter.needles]
        kept = [prefix + line for line in lines if any(needle in line for needle in needles)]
        if kept and not self._write_file(
            route.filtered, b"".join(kept), route.plan.line_filter.path
        ):
            route.filtered = None

    def _end(self, route: _Route) -> None:
        if route.partial:
            self._write_lines(route, [bytes(route.partial)])
            route.partial = bytearray()
        self._selector.unregister(route.source)
        os.close(route.source)
        route.source = -1

    def _write_file(self, fd: int, data: bytes, path: str | None) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
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

    def _close_files(self) -> None:
        for route in self._routes.values():
            if route.source >= 0:
                os.close(route.source)
            if route.file is not None:
                os.close(route.file)
        for fd in self._filters.values():
            os.close(fd)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()


def _open_for_writing(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)


def _open_pipe_like(console: int | None) -> tuple[int, int]:
    """A pipe, or a raw pseudo-terminal of the same size where the console is a terminal."""
    if console is None or not os.isatty(console):
        return os.pipe2(os.O_CLOEXEC)
    source, sink = os.openpty()
    mode = termios.tcgetattr(sink)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(sink, termios.TCSANOW, mode)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(console, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(sink, termios.TIOCSWINSZ, size)
    return source, sink


def _write_console(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        # Nobody reads the console any more; the worker would have got SIGPIPE, the files go on.
        return
