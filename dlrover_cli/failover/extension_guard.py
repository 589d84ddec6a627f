"""The parent of a failover extension: bounds its output and lets nothing of it outlive the agent.

It runs as a script of its own in an isolated interpreter (standard library only), in its own
session, and none of the user's code runs in it. It is a subreaper: whatever the extension leaves
behind becomes its child and can be found and ended. The agent holds the other end of one socket, to
which it never writes. When that socket closes, when the agent is gone, or when the extension ends
by itself, everything below this process is killed and one line goes back:

    {"status": exit code or -signal, "max_rss_kb": …, "left": [pid, …]}

`status` is how the extension ended, `left` who could not be killed in time.

Arguments: AGENT_PID CONTROL_FD CHANNEL_FD LOG_FILE COMMAND…; LOG_FILE may be empty, and the command
is started with CHANNEL_FD open.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import selectors
import signal
import sys
import time
from typing import Any, NoReturn

LOG_LIMIT = 1 << 20
_DROPPED = b"\n[further output was dropped: 1 MiB is kept]\n"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# A terminal or a supervisor may send these to every process it can see; the agent decides.
_SHIELDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The interpreter ignores these for itself; programs that it starts expect the default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_FIRST_VICTIM = "1000"
_SWEEP_SECONDS = 5.0
_SWEEP_RESCAN_SECONDS = 0.05
_CHUNK = 1 << 16
_PIPE_SIZE = 1 << 20


def main() -> None:
    """Guard one extension to its end."""
    agent, control, channel, log, *command = sys.argv[1:]
    guard = Guard(int(agent), int(control), BoundedLog(log))
    guard.start(command, int(channel))
    guard.watch()
    guard.finish()


class Guard:
    """One extension process and everything below it."""

    def __init__(self, agent: int, control: int, log: "BoundedLog") -> None:
        self._agent = agent
        self._control = control
        self._log = log
        self._pid = 0
        self._status: int | None = None
        self._max_rss_kb = 0
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._output, self._output_end = os.pipe2(os.O_CLOEXEC)
        self._child_ended, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_inheritable(control, False)
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):  # an allowance of the system's; the default will do
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def start(self, command: list[str], channel: int) -> None:
        """Start the extension; afterwards this process keeps only what it needs itself."""
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._become_extension(parent, command)
        os.close(channel)
        os.close(self._output_end)
        # Only now: the extension starts with the signals as they were.
        for signum in _SHIELDED:
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def watch(self) -> None:
        """Pass the output on until the extension has ended or has to."""
        with selectors.DefaultSelector() as selector:
            for source in (self._control, self._output, self._child_ended, *self._agent_alive()):
                selector.register(source, selectors.EVENT_READ)
            while self._reap() and self._status is None:
                ready = {key.fd for key, _ in selector.select()}
                if self._child_ended in ready:
                    os.read(self._child_ended, 4096)
                if self._output in ready and not self._pass_output():
                    selector.unregister(self._output)
                if ready - {self._child_ended, self._output}:
                    return

    def finish(self) -> None:
        """End everything below, keep the last words, and tell how it ended."""
        left = self._sweep()
        self._pass_remaining_output()
        report = {"status": self._status, "max_rss_kb": self._max_rss_kb, "left": left}
        with contextlib.suppress(OSError):  # the agent is gone
            os.write(self._control, json.dumps(report).encode("ascii") + b"\n")

    def _become_extension(self, parent: int, command: list[str]) -> NoReturn:
        try:
            os.setsid()
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)
            for signum in _RESTORED:
                signal.signal(signum, signal.SIG_DFL)
            # Should memory run out, the kernel takes the extension and not a worker or the agent.
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
                score.write(_FIRST_VICTIM)
            os.dup2(self._output_end, 1)
            os.dup2(self._output_end, 2)
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _agent_alive(self) -> list[int]:
        """A descriptor that becomes readable when the agent is gone, where the kernel has them.

        The socket alone is not enough: a process that the agent forked may hold its end open. A
        parent-death signal would not do: it fires when the thread that started us ends.
        """
        try:
            agent = os.pidfd_open(self._agent)
        except OSError:
            return []
        if os.getppid() == self._agent:
            return [agent]
        os.close(agent)
        gone, end = os.pipe2(os.O_CLOEXEC)
        os.close(end)
        return [gone]

    def _pass_output(self) -> bool:
        """Whether there can be more."""
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return True
        self._log.write(data)
        return bool(data)

    def _pass_remaining_output(self) -> None:
        # Whoever could write is dead, or stuck for good and not waited for.
        for _ in range(_PIPE_SIZE // _CHUNK):
            if not self._pass_output():
                return

    def _sweep(self) -> list[int]:
        """Kill everything below this process; return the pids that would not go in time."""
        end = time.monotonic() + _SWEEP_SECONDS
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

    def _reap(self) -> bool:
        """Collect every child that ended; return whether any child is left."""
        while True:
            try:
                pid, wait_status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(wait_status)
                self._max_rss_kb = usage.ru_maxrss


class BoundedLog:
    """The extension's stdout and stderr: the first part in a file, the rest nowhere."""

    def __init__(self, path: str) -> None:
        self._room = LOG_LIMIT
        self._fd = _open_log(path) if path else None

    def write(self, data: bytes) -> None:
        if self._fd is None or self._room <= 0:
            return
        kept = data[: self._room]
        self._room -= len(kept)
        try:
            os.write(self._fd, kept if self._room else kept + _DROPPED)
        except OSError:
            # A full disk costs the log and not the extension.
            self._fd = None


def _open_log(path: str) -> int | None:
    try:
        # Each start appends; one full file is kept beside the current one.
        if os.path.exists(path) and os.path.getsize(path) >= LOG_LIMIT:
            os.replace(path, f"{path}.old")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _descendants(root: int) -> list[int]:
    """Every live process below `root`, read from /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                fields: list[Any] = stat.read().rpartition(b")")[2].split()
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


if __name__ == "__main__":
    main()
