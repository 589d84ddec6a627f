"""The parent of the workers: starts them, reports each end, and lets none outlive the agent.

It runs as a script of its own in an isolated interpreter (standard library only), in its own
session, so that a terminal's Ctrl-C or a TERM to the agent's group does not reach it. It is a
subreaper: whatever a worker leaves behind becomes its child and can be found and ended. The agent
talks to it over one stream socket; when that socket closes, for whatever reason, everything that
was started here is killed.

Requests            {"op": "start", "id", "argv", "env"} with descriptors for 0, 1 and 2
                    {"op": "signal", "id", "signal"}      to the worker's process group
                    {"op": "sweep", "deadline"}           SIGKILL everything below this process
                    {"op": "guard", "pids"}               kill these too, should the agent vanish
                    {"op": "leave"}                       exit and leave survivors alone
Reports             {"event": "started", "id", "pid"}
                    {"event": "start_failed", "id", "errno", "error"}
                    {"event": "exited", "id", "pid", "status", "time_ns", "cpu_seconds",
                     "max_rss_kb"}
                    {"event": "swept", "stuck": [pid, …]}
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# A terminal or a supervisor may send these to every process it can see; the agent decides.
_SHIELDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The interpreter ignores these for itself; programs that it starts expect the default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_SWEEP_RESCAN_SECONDS = 0.05


class Channel:
    """Length-prefixed JSON messages over a stream socket; descriptors ride on the prefix."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        body = json.dumps(message).encode("ascii")
        prefix = _LENGTH.pack(len(body))
        if fds:
            sent = socket.send_fds(self._socket, [prefix], list(fds))
            self._socket.sendall(prefix[sent:] + body)
        else:
            self._socket.sendall(prefix + body)

    def receive(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Read once and yield every complete message; raise EOFError when the peer is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, 1 << 20, 16)
        except ConnectionError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._buffer += data
        self._fds += fds
        while (end := self._message_end()) is not None:
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            message = json.loads(body)
            count = int(message.get("fds", 0))
            taken, self._fds = self._fds[:count], self._fds[count:]
            yield message, taken

    def close(self) -> None:
        self._socket.close()

    def _message_end(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(self._buffer)[0])
        return end if len(self._buffer) >= end else None


class Nursery:
    """Serves one agent until it leaves or its end of the channel closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._workers: dict[int, str] = {}
        self._guarded: dict[int, str] = {}
        self._keep_hangup_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._child_ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Handle requests and children until the agent leaves or is gone."""
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for signum in _SHIELDED:
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._child_ended, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._child_ended in ready:
                    os.read(self._child_ended, 4096)
                    self._reap()
                if self._channel.fileno() in ready and not self._handle_requests():
                    return

    def _handle_requests(self) -> bool:
        try:
            for message, fds in self._channel.receive():
                if message["op"] == "leave":
                    return False
                self._handle(message, fds)
        except (EOFError, BrokenPipeError):
            self._sweep(deadline=5.0)
            self._kill_guarded()
            return False
        return True

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        match message["op"]:
            case "start":
                self._start(message["id"], message["argv"], message["env"], fds)
            case "signal":
                self._signal(message["id"], message["signal"])
            case "guard":
                self._guarded = {pid: _start_time(pid) for pid in message["pids"]}
            case "sweep":
                stuck = self._sweep(message["deadline"])
                self._channel.send({"event": "swept", "stuck": stuck})

    def _start(self, id_: str, argv: list[str], env: dict[str, str], fds: list[int]) -> None:
        failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(parent, argv, env, fds, failed_write)
        os.close(failed_write)
        for fd in fds:
            os.close(fd)
        with open(failed_read, "rb") as pipe:
            failure = pipe.read()
        if failure:
            os.waitpid(pid, 0)
            code = int(failure)
            self._channel.send(
                {"event": "start_failed", "id": id_, "errno": code, "error": os.strerror(code)}
            )
            return
        self._workers[pid] = id_
        self._channel.send({"event": "started", "id": id_, "pid": pid})

    def _become_worker(
        self, parent: int, argv: list[str], env: dict[str, str], fds: list[int], failed: int
    ) -> NoReturn:
        try:
            os.setsid()
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for signum in (*_SHIELDED, *_RESTORED, signal.SIGCHLD):
                if signum != signal.SIGHUP or not self._keep_hangup_ignored:
                    signal.signal(signum, signal.SIG_DFL)
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            os.write(failed, str(error.errno or errno.EIO).encode())
        finally:
            os._exit(127)

    def _signal(self, id_: str, signum: int) -> None:
        for pid, worker in self._workers.items():
            if worker == id_:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signum)

    def _reap(self) -> bool:
        """Collect every child that ended; return whether any child is left."""
        while True:
            try:
                pid, wait_status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            id_ = self._workers.pop(pid, None)
            if id_ is not None:
                self._report_exit(id_, pid, wait_status, usage.ru_utime + usage.ru_stime, usage)

    def _report_exit(self, id_: str, pid: int, wait_status: int, cpu: float, usage: Any) -> None:
        report = {
            "event": "exited",
            "id": id_,
            "pid": pid,
            "status": os.waitstatus_to_exitcode(wait_status),
            "time_ns": time.time_ns(),
            "cpu_seconds": round(cpu, 3),
            "max_rss_kb": usage.ru_maxrss,
        }
        with contextlib.suppress(OSError):  # the agent is gone; the sweep follows
            self._channel.send(report)

    def _sweep(self, deadline: float) -> list[int]:
        """Kill everything below this process; return the pids that would not go in time."""
        end = time.monotonic() + deadline
        while True:
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not self._reap():
                return []
            if time.monotonic() >= end:
                return _descendants(os.getpid())
            # A child's end cuts the wait short; its length only bounds how stale the list may get.
            if select.select([self._child_ended], [], [], _SWEEP_RESCAN_SECONDS)[0]:
                os.read(self._child_ended, 4096)

    def _kill_guarded(self) -> None:
        for pid, started in self._guarded.items():
            if started and _start_time(pid) == started:
                for victim in (*_descendants(pid), pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)


def _start_time(pid: int) -> str:
    """When the process started, as the kernel counts it; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _descendants(root: int) -> list[int]:
    """Every live process below ``root``, read from /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in b"ZX":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def main() -> None:
    """Serve the agent whose socket is the descriptor named on the command line."""
    Nursery(Channel(socket.socket(fileno=int(sys.argv[1])))).serve()


if __name__ == "__main__":
    main()
