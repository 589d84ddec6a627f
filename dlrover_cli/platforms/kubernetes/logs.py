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

    def follow(self, pod: str) -> None:
        """Begin with a pod whose container has started; nothing if it is followed already."""
        if pod in self._threads:
            return
        thread = threading.Thread(target=self._follow, args=(pod,), name=f"logs-{pod}", daemon=True)
        self._threads[pod] = thread
        thread.start()

    def finish(self, seconds: float) -> None:
        """The pods have ended: take what is still to come, but not for ever, and close."""
        for thread in self._threads.values():
            thread.join(seconds)
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
        last = ""
        while not self._is_closing.is_set():
            try:
                stream = self._client.logs(self._namespace, pod, CONTAINER, last or None)
            except KubernetesError as error:
                if not error.may_pass:
                    return self._say(f"{pod}: {error.message}")
                self._is_closing.wait(_AGAIN_SECONDS)
                continue
            with self._lock:
                self._open[pod] = stream
            has_ended = False
            try:
                for line in stream:
                    time, _, text = line.partition(b" ")
                    stamp = _sortable(time)
                    if stamp <= _sortable(last.encode()):
                        continue  # was there before the connection broke
                    last = time.decode(errors="replace")
                    self._take(pod, text, files)
                has_ended = True
            except OSError as error:
                if not isinstance(error, ConnectionError | TimeoutError):
                    raise
            except Exception as error:
                if not type(error).__module__.startswith("urllib3"):
                    raise
            finally:
                with self._lock:
                    self._open.pop(pod, None)
                stream.close()
            if has_ended:
                return None
            self._is_closing.wait(_AGAIN_SECONDS)
        return None

    def _take(self, pod: str, line: bytes, files: "_Files") -> None:
        match = _LINE.fullmatch(line)
        rank = None if match is None else int(match[1])
        text = line if match is None else match[2]
        files.write(rank, text)
        self._show(pod, rank, text)


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


def _sortable(time: bytes) -> bytes:
    """RFC 3339 has as many digits of a second as it needs; without the Z they sort when padded."""
    whole, _, part = time.rstrip(b"Z").partition(b".")
    return whole + b"." + part.ljust(9, b"0")
