"""What the pods of a run print, kept in its run directory by rank, and shown.

    nodes/<pod>/launcher.log                    what the launcher says
    nodes/<pod>/logs/attempt_0/<rank>/stdout.log    what the rank prints, on either stream

Kubernetes has one stream per container. The launchers write the rank before each line of a worker;
attempts within a pod are not told apart.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from dlrover_cli.platforms.kubernetes.client import Client, LogStream
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.pods import CONTAINER

Show = Callable[[str, int | None, bytes], None]
"""Called with the pod, the rank or None for the launcher, and a line without its end."""

_LINE = re.compile(rb"\[rank ([0-9]{1,6})\]:(.*)", re.DOTALL)
_AGAIN_SECONDS = 1.0
_JOIN_SECONDS = 5.0


class PodLogs:
    """Follows pods, each in a thread of its own, until they end or this is closed."""

    def __init__(
        self, client: Client, namespace: str, nodes: Path, show: Show, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._nodes = nodes
        self._show = show
        self._say = say
        self._is_closing = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[str, LogStream] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._marks: dict[str, _Bookmark] = {}
        self._refused: set[str] = set()

    def follow(self, pod: str, *, is_over: bool) -> None:
        """Begin with a pod whose container has started; go on if a stream ended before it did."""
        earlier = self._threads.get(pod)
        if earlier is not None and (is_over or earlier.is_alive() or pod in self._refused):
            return
        thread = threading.Thread(target=self._follow, args=(pod,), name=f"logs-{pod}", daemon=True)
        self._threads[pod] = thread
        thread.start()

    def finish(self, seconds: float) -> None:
        """The pods have ended: take what is still to come, but not for ever, and close."""
        deadline = time.monotonic() + seconds
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        self.close()

    def close(self) -> None:
        self._is_closing.set()
        with self._lock:
            streams = list(self._open.values())
        for stream in streams:
            stream.close()
        for thread in self._threads.values():
            thread.join(_JOIN_SECONDS)

    def _follow(self, pod: str) -> None:
        try:
            with _Files(self._nodes / pod) as files:
                self._copy(pod, files)
        except OSError as error:  # a full disk costs the logs, never the job
            self._say(f"the logs of {pod} cannot be kept: {error.strerror or error}")

    def _copy(self, pod: str, files: "_Files") -> None:
        mark = self._marks.setdefault(pod, _Bookmark())
        while not self._is_closing.is_set():
            try:
                stream = self._client.logs(self._namespace, pod, CONTAINER, mark.time)
            except KubernetesError as error:
                if not error.may_pass:
                    self._refused.add(pod)
                    self._say(f"{pod}: {error.message}")
                    return
            else:
                if self._copy_stream(pod, stream, mark, files):
                    return
            self._is_closing.wait(_AGAIN_SECONDS)

    def _copy_stream(self, pod: str, stream: LogStream, mark: "_Bookmark", files: "_Files") -> bool:
        """Whether it came to its end; else the connection broke, and there may be more."""
        with self._lock:
            self._open[pod] = stream
        mark.begin()
        try:
            if self._is_closing.is_set():  # which did not see this stream any more
                return True
            for line in stream:
                moment, _, text = line.partition(b" ")
                if mark.is_new(moment):
                    self._take(pod, text, files)
        except Exception as error:
            if not _is_of_the_connection(error):
                raise
            return False
        finally:
            with self._lock:
                self._open.pop(pod, None)
            stream.close()
        return True

    def _take(self, pod: str, line: bytes, files: "_Files") -> None:
        match = _LINE.fullmatch(line)
        rank = None if match is None else int(match[1])
        text = line if match is None else match[2]
        files.write(rank, text)
        self._show(pod, rank, text)


class _Bookmark:
    """How far a pod's lines were read: when a stream begins anew, some of them come again."""

    def __init__(self) -> None:
        self.time: str | None = None
        """Of the last line, as the server wrote it."""
        self._last = b""
        self._count = 0
        self._to_skip = 0
        self._is_behind = False

    def begin(self) -> None:
        self._is_behind, self._to_skip = self.time is not None, self._count

    def is_new(self, moment: bytes) -> bool:
        stamp = _sortable(moment)
        if self._is_behind:
            if stamp < self._last:
                return False
            if stamp == self._last and self._to_skip > 0:
                self._to_skip -= 1
                return False
            self._is_behind = False
        self._count = self._count + 1 if stamp == self._last else 1
        self._last, self.time = stamp, moment.decode(errors="replace")
        return True


class _Files:
    """The files of one pod, opened when there is something to write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[int | None, BinaryIO] = {}

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def write(self, rank: int | None, line: bytes) -> None:
        if rank not in self._open:
            below = ("launcher.log",) if rank is None else _path_of(rank)
            path = self._directory.joinpath(*below)
            for parent in reversed([path.parent, *path.parent.parents]):
                if parent.is_relative_to(self._directory.parent):
                    parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._open[rank] = open(os.open(path, flags, 0o600), "ab", buffering=0)  # noqa: SIM115
        self._open[rank].write(line + b"\n")


def show_on_console(pod: str, rank: int | None, line: bytes) -> None:
    """Workers' lines on stdout, launchers' on stderr, each with where it is from."""
    stream, origin = (sys.stderr, pod) if rank is None else (sys.stdout, f"rank {rank}")
    with suppress(OSError, ValueError, AttributeError):  # closed, full, or not read any more
        stream.write(f"[{origin}] {line.decode(errors='replace')}\n")
        stream.flush()


def show_nothing(pod: str, rank: int | None, line: bytes) -> None:
    """For a runner, which has nobody to show it to."""


def _path_of(rank: int) -> tuple[str, ...]:
    return ("logs", "attempt_0", str(rank), "stdout.log")


def _is_of_the_connection(error: Exception) -> bool:
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError | TimeoutError)
    return type(error).__module__.startswith(("urllib3", "http.client"))


def _sortable(moment: bytes) -> bytes:
    """RFC 3339 has as many digits of a second as it needs; without the Z they sort when padded."""
    whole, _, part = moment.rstrip(b"Z").partition(b".")
    return whole + b"." + part.ljust(9, b"0")
