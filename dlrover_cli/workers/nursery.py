"""The parent of the workers: starts them, reports each end, and lets none outlive the agent.

It runs as a script of its own in an isolated interpreter (standard library only), in its own
session, so that a terminal's Ctrl-C or a TERM to the agent's group does not reach it. It is a
subreaper: whatever a worker leaves behind becomes its child and can be found and ended. The agent
talks to it over one stream socket; when that socket closes, for whatever reason, everything that
was started here is killed.

Requests            {"op": "start", "id", "argv", "env", "fds": [number, …]}
                                                          each descriptor gets its number
                    {"op": "signal", "id", "signal"}      to the worker's process group
                    {"op": "sweep", "deadline"}           SIGKILL everything below this process
                    {"op": "guard", "pids"}               kill these too, should the agent vanish
                    {"op": "lend_terminal", "group", "leader", "fds": [terminal]}
                                                          modes to put back, should the same be
                    {"op": "relay", "fds": […]}           a stream that outlives its worker, targets
                    {"op": "leave"}                       leave survivors alone: relay, then exit
Reports             {"event": "started", "id", "pid"}
                    {"event": "start_failed", "id", "errno", "error"}
                    {"event": "exited", "id", "pid", "status", "time_ns", "cpu_seconds",
                     "max_rss_kb"}
                    {"event": "swept", "stuck": [pid, …]}

Arguments and variables are any bytes; they travel as latin-1 (see `packed`).
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

_libc = ctypes.CDLL(None)
_LENGTH = struct.Struct("!I")
_MOST_DESCRIPTORS = 250  # the kernel takes 253 in one message
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# A terminal or a supervisor may send these to every process it can see; the agent decides.
SHIELDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The interpreter ignores these for itself; programs that it starts expect the default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_SWEEP_RESCAN_SECONDS = 0.05
_LAST_SWEEP_SECONDS = 5.0


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
            data, fds, _, _ = socket.recv_fds(self._socket, 1 << 20, _MOST_DESCRIPTORS)
        except ConnectionError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._buffer += data
        for fd in fds:
            os.set_inheritable(fd, False)  # what belongs to one worker is not for the others
        self._fds += fds
        while (end := self._message_end()) is not None:
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            message = json.loads(body)
            count = len(message.get("fds", ()))
            taken, self._fds = self._fds[:count], self._fds[count:]
            yield message, taken

    def close(self) -> None:
        """Also what has come with requests that nobody has handled yet."""
        self._socket.close()
        while self._fds:
            os.close(self._fds.pop())

    def _message_end(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(self._buffer)[0])
        return end if len(self._buffer) >= end else None


def packed(text: str) -> str:
    """A text of this process's encoding as its bytes in latin-1, which JSON carries unchanged."""
    return os.fsencode(text).decode("latin-1")


@dataclass(slots=True)
class Relay:
    """A stream that somebody still holds although its worker has ended."""

    source: int
    targets: list[int]

    def descriptors(self) -> list[int]:
        """The source first; all of them belong to whoever has the relay."""
        return [self.source, *self.targets]

    def close(self) -> None:
        """Release the descriptors; whoever still writes gets a broken pipe."""
        for fd in self.descriptors():
            os.close(fd)

    def copy_once(self) -> bool:
        """Copy what is there. False at the end of the stream."""
        try:
            data = os.read(self.source, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:  # a pseudo-terminal reports its last writer's end as EIO
            return False
        for target in tuple(self.targets):
            try:
                write_all(target, data)
            except OSError:  # nobody reads there; the writer must not suffer for it
                self.targets.remove(target)
        return bool(data)


class LentTerminal:
    """The agent's terminal, as it was before a worker read from it in modes of its own."""

    def __init__(self, fd: int, group: int, leader: int) -> None:
        """``fd`` is ours from here on; ``group`` and ``leader`` are the agent's."""
        import termios  # asked for seldom

        self._fd = fd
        self._group = group
        self._leader = leader
        self._leader_since = start_time(leader)
        self._before: list[Any] | None = None
        with contextlib.suppress(termios.error):  # it is none
            self._before = termios.tcgetattr(fd)

    def give_back(self) -> None:
        """Undo what workers that are gone by now have changed, unless somebody else has it."""
        import termios

        if self._before is None or not self._is_left_to_us():
            return
        with contextlib.suppress(termios.error):  # it is gone
            if termios.tcgetattr(self._fd) != self._before:
                termios.tcsetattr(self._fd, termios.TCSANOW, self._before)

    def close(self) -> None:
        os.close(self._fd)

    def _is_left_to_us(self) -> bool:
        """Not if a shell has taken it back: it has modes of its own by now, to edit a line in.

        It is not our session's terminal, so the kernel tells by way of its session's leader only.
        """
        fields = _stat(self._leader)
        if not fields or fields[0] in "ZX" or fields[19] != self._leader_since:
            return True
        return int(fields[5]) in (self._group, -1)


class Nursery:
    """Serves one agent until it leaves or its end of the channel closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._workers: dict[int, str] = {}
        self._guarded: dict[int, str] = {}
        self._relays: list[Relay] = []
        self._terminal: LentTerminal | None = None
        self._keep_hangup_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._child_ended, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def release(self) -> None:
        """Close what is open here beside the channel; in a child that goes its own way."""
        signal.set_wakeup_fd(-1)
        for fd in (self._child_ended, self._wake):
            os.close(fd)
        for relay in self._relays:
            relay.close()
        if self._terminal is not None:
            self._terminal.close()

    def settle_in(self) -> None:
        """Become the parent of all that is left behind below, and deaf to what the agent hears."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        for signum in SHIELDED:
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Handle requests and children until the agent leaves or is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._child_ended, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(self._idle_after())}
                if not ready:
                    self._when_idle()
                if self._child_ended in ready:
                    os.read(self._child_ended, 4096)
                    self._reap()
                if self._channel.fileno() in ready and not self._handle_requests():
                    return

    def kill_everything(self) -> None:
        """The agent is gone, or we are about to be: end what was started and what was entrusted."""
        # At once: a shell that waits for the agent takes the terminal as it finds it.
        self._give_terminal_back()
        kill_families(self._guarded, _LAST_SWEEP_SECONDS)
        self._sweep(_LAST_SWEEP_SECONDS)
        self._give_terminal_back()  # should a worker have been at it meanwhile

    def relay(self) -> None:
        """Copy the streams that survivors hold, until they have closed them."""
        self._channel.close()
        for signum in SHIELDED:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them from here on
        self._reap()
        with selectors.DefaultSelector() as selector:
            for relay in self._relays:
                selector.register(relay.source, selectors.EVENT_READ, relay)
            while selector.get_map():
                for key, _ in selector.select():
                    if not key.data.copy_once():
                        selector.unregister(key.data.source)
                        key.data.close()

    def _idle_after(self) -> float | None:
        """Seconds without anything to do after which `_when_idle` is called."""
        return None

    def _when_idle(self) -> None:
        """Use the time."""

    def _handle_requests(self) -> bool:
        try:
            for message, fds in self._channel.receive():
                if message["op"] == "leave":
                    self.relay()
                    return False
                self._handle(message, fds)
        except (EOFError, ConnectionError):
            self.kill_everything()
            return False
        return True

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        match message["op"]:
            case "start":
                self._start(message, fds)
            case "signal":
                self._signal(message["id"], message["signal"])
            case "guard":
                self._guarded = {pid: start_time(pid) for pid in message["pids"]}
            case "lend_terminal":
                if self._terminal is None:
                    self._terminal = LentTerminal(fds[0], message["group"], message["leader"])
                else:  # as it was before the first attempt
                    os.close(fds[0])
            case "relay":
                self._relays.append(Relay(fds[0], fds[1:]))
            case "sweep":
                stuck = self._sweep(message["deadline"])
                self._channel.send({"event": "swept", "stuck": stuck})

    def _give_terminal_back(self) -> None:
        if self._terminal is not None:
            self._terminal.give_back()

    def _start(self, message: dict[str, Any], fds: list[int]) -> None:
        id_ = message["id"]
        try:
            pid = self._fork_worker(message, fds)
        except OSError as error:
            code = error.errno or errno.EIO
            self._channel.send(
                {"event": "start_failed", "id": id_, "errno": code, "error": os.strerror(code)}
            )
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._workers[pid] = id_
        self._channel.send({"event": "started", "id": id_, "pid": pid})

    def _fork_worker(self, message: dict[str, Any], fds: list[int]) -> int:
        """The pid of a process that executes the worker's program. Raises OSError."""
        failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        with open(failed_read, "rb") as pipe:
            try:
                pid = os.fork()
                if pid == 0:
                    self._become_worker(parent, message, fds, failed_write)
            finally:
                os.close(failed_write)
            failure = pipe.read()
        if failure:
            os.waitpid(pid, 0)
            raise OSError(int(failure), os.strerror(int(failure)))
        return pid

    def _become_worker(
        self, parent: int, message: dict[str, Any], fds: list[int], failed: int
    ) -> NoReturn:
        code = errno.EINVAL
        try:
            self._leave_home(parent)
            for signum in _RESTORED:
                signal.signal(signum, signal.SIG_DFL)
            argv = [part.encode("latin-1") for part in message["argv"]]
            env = {
                name.encode("latin-1"): value.encode("latin-1")
                for name, value in message["env"].items()
            }
            failed = _place_descriptors(fds, message["fds"], failed)
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            # Here after any failure, also one that is no OSError, such as a zero byte.
            os.write(failed, str(code).encode())
            os._exit(127)

    def _leave_home(self, parent: int) -> None:
        """In a child: a session of its own, an end with its parent's, the default signals."""
        os.setsid()
        end_with_parent()
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for signum in (*SHIELDED, signal.SIGCHLD):
            if signum != signal.SIGHUP or not self._keep_hangup_ignored:
                signal.signal(signum, signal.SIG_DFL)

    def _signal(self, id_: str, signum: int) -> None:
        for pid, worker in self._workers.items():
            if worker == id_:
                with contextlib.suppress(OSError):  # gone, or no longer ours to signal
                    os.killpg(pid, signum)

    def _reap(self) -> None:
        """Collect every child that ended, and report those that were workers."""
        while True:
            try:
                pid, wait_status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            id_ = self._workers.pop(pid, None)
            if id_ is not None:
                self._report_exit(id_, pid, wait_status, usage)

    def _report_exit(self, id_: str, pid: int, wait_status: int, usage: Any) -> None:
        report = {
            "event": "exited",
            "id": id_,
            "pid": pid,
            "status": os.waitstatus_to_exitcode(wait_status),
            "time_ns": time.time_ns(),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "max_rss_kb": usage.ru_maxrss,
        }
        with contextlib.suppress(OSError):  # the agent is gone; the sweep follows
            self._channel.send(report)

    def _sweep(self, deadline: float) -> list[int]:
        """Kill everything below this process; return the pids that would not go in time."""
        end = time.monotonic() + deadline
        while True:
            below = self._all_below()
            self._reap()
            if not below or time.monotonic() >= end:
                return below
            _kill(below)
            # A child's end cuts the wait short; its length only bounds how stale the list may get.
            if select.select([self._child_ended], [], [], _SWEEP_RESCAN_SECONDS)[0]:
                os.read(self._child_ended, 4096)

    def _all_below(self) -> list[int]:
        """Who dies in a sweep: everybody that was started here, and what they started."""
        return _below([os.getpid()], live_processes())


def _place_descriptors(fds: Sequence[int], numbers: Sequence[int], failed: int) -> int:
    """Give each descriptor its number; returns where ``failed``, which stays ours, is now."""
    above = max((*numbers, *fds, failed)) + 1
    failed = fcntl.fcntl(failed, fcntl.F_DUPFD_CLOEXEC, above)
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
    return failed


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """Undo `end_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, value, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One live process, as /proc shows it."""

    pid: int
    parent: int
    session: int


def live_processes() -> list[ProcessEntry]:
    """Every process of the machine that is more than a zombie."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        if fields and fields[0] not in "ZX":
            found.append(ProcessEntry(int(name), int(fields[1]), int(fields[3])))
    return found


def kill_families(leaders: Mapping[int, str], deadline: float) -> list[int]:
    """SIGKILL these processes, all below them, all in the sessions they lead; return who stayed.

    ``leaders`` has the start time of each, for its number may belong to somebody else by now.
    """
    end = time.monotonic() + deadline
    ours = {pid for pid, since in leaders.items() if since and start_time(pid) in ("", since)}
    while True:
        processes = live_processes()
        members = [each.pid for each in processes if each.pid in ours or each.session in ours]
        victims = dict.fromkeys(
            (*ours.intersection(members), *members, *_below(members, processes))
        )
        if not victims or time.monotonic() >= end:
            return sorted(victims)
        _kill(victims)
        time.sleep(_SWEEP_RESCAN_SECONDS / 10)


def _below(roots: Iterable[int], processes: Iterable[ProcessEntry]) -> list[int]:
    """The descendants of these processes, parents before their children."""
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    pending = deque(roots)
    while pending:
        below = children.get(pending.popleft(), [])
        found += below
        pending += below
    return found


def _kill(pids: Iterable[int]) -> None:
    """SIGKILL these, in this order: a parent must not see its child die and take it for an end."""
    for pid in pids:
        with contextlib.suppress(OSError):  # gone, or no longer ours to signal
            os.kill(pid, signal.SIGKILL)


def start_time(pid: int) -> str:
    """When the process started, as the kernel counts it; empty if there is no such process."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def parent_of(pid: int) -> int | None:
    """The pid of the process's parent, if there is such a process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str]:
    """What follows the name in /proc/<pid>/stat; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def write_all(fd: int, data: bytes) -> None:
    """Write everything, waiting where the descriptor would not. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Whoever shares the terminal or pipe with us has made it non-blocking.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def main() -> None:
    """Serve the agent whose socket is the descriptor named on the command line."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    nursery = Nursery(Channel(sock))
    try:
        nursery.settle_in()
        nursery.serve()
    except BaseException:
        nursery.kill_everything()
        raise


if __name__ == "__main__":
    main()
