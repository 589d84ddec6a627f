"""Stores in a process of their own, which neither a lookup nor a busy agent can freeze."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from dlrover_cli.errors import LaunchError
from dlrover_cli.rendezvous.store_process import serve_forked

_MODULE = "dlrover_cli.rendezvous.store_process"
# A new interpreter imports torch first, which takes long on a cold file system.
_REPLY_SECONDS = 120.0
_END_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.002


class PortTaken(LaunchError):
    """Somebody else listens on the port that was asked for."""


class StoreHost:
    """A child process with TCPStore servers in it, which ends with this process at the latest.

    May be used by several threads. Both ways to start it come back at once; the first `open` waits
    until the process is up.
    """

    def __init__(self, channel: socket.socket, wait: Callable[[float], bool], pid: int) -> None:
        """Use `fork` or `spawn`. `wait` reaps the child and says whether it has ended."""
        self.pid = pid
        self.forbids_lookups: bool | None = None
        """Known after the first `open`; False where the kernel has no way to forbid them."""
        self._channel = channel
        self._channel.settimeout(_REPLY_SECONDS)
        self._reader = channel.makefile("rb")
        self._wait = wait
        self._ports: set[int] = set()
        self._lock = threading.Lock()

    @classmethod
    def fork(cls) -> Self:
        """Start it as a copy of this process: cheap, since torch is there already.

        The caller promises that this process has imported torch.distributed, runs one thread, and
        has never hosted a store itself.
        """
        ours, theirs = socket.socketpair()
        agent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            raise _cannot_start(error) from error
        if pid == 0:
            ours.close()
            serve_forked(theirs, agent)
        theirs.close()
        return cls(ours, lambda seconds: _reap(pid, seconds), pid)

    @classmethod
    def spawn(cls) -> Self:
        """Start it as a new interpreter: for a process with threads, or without torch."""
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            path = json.dumps([str(entry) for entry in sys.path])
            code = (
                f"import sys; sys.path[:] = {path}; from {_MODULE} import serve_spawned; "
                "serve_spawned()"
            )
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", code, str(fd), str(os.getpid())],
                    pass_fds=(fd,),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise _cannot_start(error) from error
        return cls(ours, lambda seconds: _ended(process, seconds), process.pid)

    @property
    def ports(self) -> frozenset[int]:
        """Where its stores listen."""
        return frozenset(self._ports)

    def open(self, port: int = 0, host: str | None = None) -> int:
        """Open a store, on a free port if it is 0, and return the port.

        It listens on every address of this machine unless `host` names one. Raises PortTaken, or
        another LaunchError.
        """
        reply = self._ask({"op": "open", "host": host, "port": port})
        if "port" in reply:
            self._ports.add(reply["port"])
            return int(reply["port"])
        at = f"port {port}" if port else "a free port"
        if reply["errno"] == errno.EADDRINUSE:
            raise PortTaken(f"{at} is in use", hint="choose another port")
        raise LaunchError(
            f"cannot open a store on {at}: {reply['error']}",
            hint="check the limits on open files and ports",
        )

    def drop(self, port: int) -> None:
        """Close a store; whoever is connected to it loses it."""
        self._ports.discard(port)
        self._ask({"op": "drop", "port": port})

    def replace(self, port: int | None) -> int | None:
        """Open a store at a free port in the place of an earlier one, whose users are gone.

        None if it cannot be had: the process was killed, and the caller has to do without it.
        """
        try:
            if port is not None:
                self.drop(port)
            return self.open()
        except LaunchError:
            return None

    def close(self) -> None:
        """End the process with all of its stores. Does nothing the second time."""
        self._ports.clear()
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if not self._wait(_END_SECONDS):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait(_END_SECONDS)
        self._wait = lambda seconds: True  # the pid may be somebody else's from now on
        self._reader.close()
        self._channel.close()

    def forget(self) -> None:
        """In a fork of this process: let go of it. It is the parent's alone."""
        self._reader.close()
        self._channel.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                if self.forbids_lookups is None:
                    self.forbids_lookups = self._read()["lookups"] == "forbidden"
                self._channel.sendall(json.dumps(request).encode() + b"\n")
                return self._read()
            except (OSError, ValueError) as error:
                raise LaunchError(
                    f"the process that hosts the stores does not answer: {error}",
                    hint="it may have been killed; see the kernel's log for a lack of memory",
                ) from error

    def _read(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self._reader.readline() or "its channel is closed")
        return reply


def _reap(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:  # somebody else in this process waits for every child
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_AGAIN_SECONDS)


def _ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _cannot_start(error: OSError) -> LaunchError:
    return LaunchError(
        f"cannot start the process that hosts the stores: {error.strerror}",
        hint="check the limits on processes and memory",
    )
