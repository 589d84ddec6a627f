"""Where a worker's stdout and stderr go: straight on, into a file, or through us to several places.

A stream that needs no copy is handed to the worker as it is. One that is teed, or kept for the
verdict, goes through a pipe (a pseudo-terminal where ours is a terminal, so that colours and
progress bars stay as they were) and one pump thread per attempt copies it. A disk that fills up
costs the file, never the worker or the console. A worker that writes faster than the console takes
it waits, as it would without us: each stream is read a little at a time, in turn, and nothing piles
up here.
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
from collections.abc import Callable

from dlrover_cli.workers.console import Console
from dlrover_cli.workers.log_file import Watch, open_for_writing
from dlrover_cli.workers.nursery import Relay
from dlrover_cli.workers.stream_route import (
    TAIL_BYTES,
    LineFilter,
    Route,
    StreamPlan,
    WorkerStreams,
    open_route,
)

__all__ = [
    "LineFilter",
    "StreamPlan",
    "StreamPump",
    "WorkerStreams",
    "fill_standard_descriptors",
]

_CHUNK = 1 << 16
# More than a pipe holds: reading this much gets all that an ended worker wrote, even while
# something that it left behind keeps writing.
_DRAIN_BYTES = 1 << 20
# A console that accepts nothing (a stopped terminal) must not hold up the end, or a verdict.
_FINISH_SECONDS = 5.0
_TAIL_SECONDS = 1.0


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

    def __init__(
        self,
        on_problem: Callable[[str], None],
        is_silenced: Callable[[], bool] | None = None,
    ) -> None:
        """``is_silenced`` tells whether consoles have to wait: a person is busy with one."""
        self._on_problem = on_problem
        self._is_silenced = is_silenced
        self._routes: dict[tuple[int, str], Route] = {}
        self._consoles: set[Console] = set()
        self._filters: dict[str, int] = {}
        self._direct: dict[tuple[int, str], str] = {}
        self._watch = Watch()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._wanted: deque[tuple[Route, threading.Event]] = deque()
        self._finishing = False
        self._thread: threading.Thread | None = None
        self._reported: set[str] = set()

    def open(self, local_rank: int, name: str, plan: StreamPlan) -> tuple[int, bool]:
        """Return the descriptor for the worker, and whether the caller must close its copy."""
        if plan.needs_pump:
            return self._open_pumped(local_rank, name, plan), True
        if plan.file is not None:
            self._direct[local_rank, name] = plan.file
            fd = open_for_writing(plan.file)
            if plan.times is not None:
                self._watch.add(plan.file, plan.times)
            return fd, True
        if plan.console is not None:
            return plan.console, False
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), True

    def start(self) -> None:
        """Begin copying, if anything has to be copied or looked at."""
        if self._routes or self._watch.next_look() is not None:
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
        return bytes(route.tail[-TAIL_BYTES:]).decode("utf-8", "replace")

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
        self._watch.close()
        self._close_files(keep={fd for relay in held for fd in relay.descriptors()})
        return held

    def _open_pumped(self, local_rank: int, name: str, plan: StreamPlan) -> int:
        source, sink = _open_pipe_like(plan.console)
        os.set_blocking(source, False)
        route = open_route(source, plan, self._open_filter, self._report)
        if route.speaker is not None:
            route.speaker.console.silence_while(self._is_silenced)
            self._consoles.add(route.speaker.console)
        self._routes[local_rank, name] = route
        self._selector.register(source, selectors.EVENT_READ, route)
        return sink

    def _open_filter(self, path: str) -> int | None:
        if path not in self._filters:
            try:
                self._filters[path] = open_for_writing(path)
            except OSError as error:
                self._report(path, error)
                return None
        return self._filters[path]

    # ---- the pump's own thread -----------------------------------------------------------------

    def _run(self) -> None:
        while not self._finishing:
            for key, _ in self._selector.select(self._until_next_look()):
                if key.data is None:
                    self._answer_wanted()
                else:
                    self._copy(key.data, _CHUNK)
            for console in self._consoles:
                console.settle()
            self._read_on()
            self._watch.look()
        for console in self._consoles:
            console.silence_while(None)
        for route in self._routes.values():
            self._copy(route, _DRAIN_BYTES)
            route.finish_lines()
        self._answer_wanted()

    def _until_next_look(self) -> float | None:
        looks = [console.next_look() for console in self._consoles]
        due = min((look for look in (*looks, self._watch.next_look()) if look), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _read_on(self) -> None:
        """Read again the streams that the console has caught up with."""
        for route in self._routes.values():
            if route.is_paused and not route.has_too_much:
                route.is_paused = False
                if route.source >= 0:
                    self._selector.register(route.source, selectors.EVENT_READ, route)

    def _answer_wanted(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, _CHUNK)
        while self._wanted:
            route, copied = self._wanted.popleft()
            self._copy(route, _DRAIN_BYTES)
            copied.set()

    def _copy(self, route: Route, most: int) -> None:
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
            route.deliver(chunk)
        if route.source >= 0 and not route.is_paused and route.has_too_much:
            route.is_paused = True
            self._selector.unregister(route.source)

    def _end(self, route: Route) -> None:
        route.finish_lines()
        if not route.is_paused:
            self._selector.unregister(route.source)
        os.close(route.source)
        route.source = -1

    def _report(self, path: str, error: OSError) -> None:
        if path not in self._reported:
            self._reported.add(path)
            self._on_problem(
                f"cannot write the log {path}: {error.strerror}; the job goes on without it"
            )

    def _close_files(self, keep: set[int]) -> None:
        self._selector.close()
        for route in self._routes.values():
            route.close(keep)
        for fd in (self._wake_read, self._wake_write, *self._filters.values()):
            os.close(fd)


def _held(route: Route) -> Relay:
    """A stream without its pump. A teed one goes on in its file only, as under torchrun."""
    targets = [] if route.file is None else [route.file.fd]
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
