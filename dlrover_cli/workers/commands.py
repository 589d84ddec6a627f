"""Workers that are commands: fresh processes, started by the nursery that is their parent."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers import nursery
from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerLaunch
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPump, fill_standard_descriptors
from dlrover_cli.workers.zygote import Upbringing
from dlrover_cli.workers.zygote import command as zygote_command

_SIGKILL_STATUS = -9
_ABANDON_SECONDS = 5.0


# A process that is forked from ours would keep the channel open, and the nursery would not notice
# our end.
_channels: weakref.WeakSet[nursery.Channel] = weakref.WeakSet()


def _close_inherited_channels() -> None:
    for channel in _channels:
        channel.close()


os.register_at_fork(after_in_child=_close_inherited_channels)


class HelperProcess(Protocol):
    """The process at the other end of a channel."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


class ForkedProcess:
    """A child of ours that `subprocess` did not start."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        status = self._wait(0)
        return 0 if status is None else status

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else has waited for it
                self._status = 0
            else:
                self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


class NurseryClient:
    """The agent's end of one nursery process, cold or warm."""

    def __init__(self, sock: socket.socket, process: HelperProcess) -> None:
        self._process = process
        self.channel = nursery.Channel(sock)
        _channels.add(self.channel)
        self._reports: list[dict[str, Any]] = []
        self._sending = threading.Lock()
        self._relays = False
        self._has_left = False
        self.answers = True
        """Until its end of the channel has closed."""

    @classmethod
    def start(cls) -> Self:
        """Start a cold nursery. Raises LaunchError."""
        script = ("-I", "-S", nursery.__file__)
        return cls._execute(lambda fd: [sys.executable, *script, str(fd)])

    @classmethod
    def start_warm(
        cls, preloads: Sequence[str], beside: str | None = None, *, learns: bool = False
    ) -> Self:
        """Execute a zygote, where none can be forked. Raises LaunchError."""
        upbringing = Upbringing(tuple(preloads), beside, learns)
        return cls._execute(lambda fd: zygote_command(fd, upbringing))

    @classmethod
    def _execute(cls, command: Callable[[int], list[str]]) -> Self:
        fill_standard_descriptors()
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    command(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            raise LaunchError(
                f"cannot start the process that starts the workers: {error.strerror}",
                hint=_start_hint(error.errno),
            ) from error
        return cls(ours, process)

    def is_alive(self) -> bool:
        """Whether it can serve another attempt."""
        return self.answers and self._process.poll() is None

    def request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a request; a nursery that is gone is noticed by its missing reports."""
        if not self.answers:
            return
        try:
            with self._sending:
                self.channel.send(message, fds)
        except OSError:
            self.answers = False

    def lend_terminal(self) -> None:
        """Have it give our terminal its modes back, should this process vanish."""
        ours = {"group": os.getpgrp(), "leader": os.getsid(0)}
        self.request({"op": "lend_terminal", **ours, "fds": [0]}, [0])

    def relay(self, relay: nursery.Relay) -> None:
        """Entrust a stream to the nursery, which serves it for as long as somebody writes to it."""
        fds = relay.descriptors()
        self.request({"op": "relay", "fds": fds}, fds)
        self._relays = True
        relay.close()

    def await_report(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Block until a wanted report comes; keep the others. None if the nursery is gone."""
        while True:
            for index, report in enumerate(self._reports):
                if wanted(report):
                    return self._reports.pop(index)
            if not self.answers:
                return None
            self._read()

    def take_reports(self) -> Iterator[dict[str, Any]]:
        """All reports at hand, after one read from the channel."""
        self._read()
        yield from self.kept_reports()

    def kept_reports(self) -> Iterator[dict[str, Any]]:
        """The reports that an earlier wait had to pass over."""
        while self._reports:
            yield self._reports.pop(0)

    def leave(self) -> None:
        """End the nursery, but nothing that runs below it; it stays while it has a relay."""
        self.request({"op": "leave"})
        self._has_left = True
        self.channel.close()
        if not self._relays:
            self._process.wait()

    def kill(self) -> None:
        """End the nursery at once, with what it has started on its own account."""
        pid = self._process.pid
        nursery.kill_families({pid: nursery.start_time(pid)}, _ABANDON_SECONDS)
        self.close()

    def close(self) -> None:
        """End the nursery and everything below it, unless it was left alone before."""
        self.channel.close()
        if not self._has_left:
            self._process.wait()

    def _read(self) -> None:
        try:
            self._reports += [message for message, _ in self.channel.receive()]
        except EOFError:
            self.answers = False


class CommandStarter:
    """Starts command workers through one nursery, which is replaced should it ever die.

    A warm one, a ``zygote``, forks them as long as it can be trusted; what takes its place starts
    them fresh.
    """

    def __init__(
        self, on_problem: Callable[[str], None], zygote: NurseryClient | None = None
    ) -> None:
        self._on_problem = on_problem
        self._is_warming_up = self._warm = zygote is not None
        # Started at once: its interpreter comes up while the agent imports torch.
        self._nursery = zygote or NurseryClient.start()

    def ready(self) -> None:
        """Wait until workers can be started; for a zygote, until it has loaded what they need."""
        if not self._is_warming_up:
            return
        report = self._nursery.await_report(lambda report: report["event"] == "warm")
        self._is_warming_up = False  # not before: a signal may cut the wait short
        if report is not None and report["problem"] is not None:
            self._warm = False
            self._on_problem(f"{report['problem']}; workers are started fresh")

    def start(self, request: StartRequest, inbox: Inbox) -> "CommandWorkers":
        """Start every worker of the request or none. Raises LaunchError."""
        self.ready()
        commands = {launch.local_rank: _command(request, launch) for launch in request.launches}
        return self.start_commands(request, commands, inbox)

    def start_commands(
        self, request: StartRequest, commands: Mapping[int, "Command"], inbox: Inbox
    ) -> "CommandWorkers":
        """As ``start``, with the command of each local rank given."""
        pump = open_pump(self._on_problem, request.is_silenced)
        client = self.living_nursery()
        return CommandWorkers(request, commands, inbox, client, pump, warm=self._warm)

    def living_nursery(self) -> NurseryClient:
        """The nursery, or a new one in its place."""
        if not self._nursery.is_alive():
            self._nursery.close()
            if self._warm:
                self._warm = False
                self._on_problem("the warm process has died; workers are started fresh")
            self._nursery = NurseryClient.start()
        return self._nursery

    def close(self, *, leave_survivors: bool) -> None:
        """End the nursery; unless told to leave them, it kills whatever is left below it."""
        if self._is_warming_up:
            self._is_warming_up = False
            self._nursery.kill()  # what it loads may take long, and it has no workers yet
        elif leave_survivors:
            self._nursery.leave()
        else:
            self._nursery.close()


@dataclass(frozen=True, slots=True)
class Command:
    """What is executed for one worker, and which descriptors it has beyond the first three."""

    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()
    value: Callable[[], Any] = lambda: None
    """What a worker that succeeded returned."""


class CommandWorkers:
    """One attempt's command workers."""

    def __init__(
        self,
        request: StartRequest,
        commands: Mapping[int, Command],
        inbox: Inbox,
        client: NurseryClient,
        pump: StreamPump,
        *,
        warm: bool = False,
    ) -> None:
        self._warm = warm
        self._attempt = request.attempt
        self._commands = commands
        self._inbox = inbox
        self._client = client
        self._pump = pump
        self._running: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._start_times: dict[int, str] = {}
        if request.lends_terminal:
            client.lend_terminal()
        try:
            for launch in request.launches:
                self._request_start(commands[launch.local_rank], launch)
            for launch in request.launches:
                self._await_start(commands[launch.local_rank].argv[0], launch.local_rank)
        except LaunchError:
            self._abandon()
            raise
        if warm:
            client.request({"op": "expect", "count": len(request.launches)})
        self._pump.start()
        inbox.watch(client.channel, self._read_exits)
        self._watching = True
        self._post_kept_exits()

    def pids(self) -> dict[int, int]:
        return dict(self._pids)

    def signal(self, local_rank: int, signum: int) -> None:
        self._client.request({"op": "signal", "id": self._id(local_rank), "signal": int(signum)})

    def kill(self, deadline: float) -> list[int]:
        self._client.request({"op": "sweep", "deadline": deadline})
        swept = self._client.await_report(lambda report: report["event"] == "swept")
        self._post_kept_exits()
        if swept is None:
            return nursery.kill_families(self._start_times, deadline)
        return list(swept["stuck"])

    def last_output(self, local_rank: int) -> float | None:
        return self._pump.last_output(local_rank)

    def tail(self, local_rank: int) -> str | None:
        return self._pump.tail(local_rank, "stderr")

    def close(self) -> None:
        self._stop_watching()
        for relay in self._pump.finish():
            self._client.relay(relay)

    def _request_start(self, command: Command, launch: WorkerLaunch) -> None:
        opened: list[int] = []
        try:
            stdin = 0
            if not launch.has_stdin:
                stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                opened.append(stdin)
            stdio = [stdin, *open_streams(self._pump, launch, opened)]
            self._client.request(
                {
                    "op": "start",
                    "id": self._id(launch.local_rank),
                    "argv": [nursery.packed(part) for part in command.argv],
                    "env": {
                        nursery.packed(name): nursery.packed(value)
                        for name, value in launch.env.items()
                    },
                    "fds": [0, 1, 2, *command.fds],
                    "warm": self._warm,
                },
                (*stdio, *command.fds),
            )
        finally:
            for fd in opened:
                os.close(fd)

    def _await_start(self, program: str, local_rank: int) -> None:
        id_ = self._id(local_rank)
        report = self._client.await_report(
            lambda report: (
                report.get("id") == id_ and report["event"] in ("started", "start_failed")
            )
        )
        if report is None:
            raise LaunchError("the process that starts the workers has died", hint="run it again")
        if report["event"] == "start_failed":
            raise LaunchError(
                f"cannot start {program!r}: {report['error']}", hint=_start_hint(report["errno"])
            )
        pid: int = report["pid"]
        self._pids[local_rank] = self._running[local_rank] = pid
        self._start_times[pid] = nursery.start_time(pid)

    def _abandon(self) -> None:
        self.kill(_ABANDON_SECONDS)
        for relay in self._pump.finish():
            relay.close()

    def _read_exits(self) -> Iterator[WorkerExit]:
        for report in self._client.take_reports():
            yield from self._exits_of(report)
        if self._client.answers:
            return
        # Its death took the workers with it (parent-death signal), but nothing below them.
        self._stop_watching()
        nursery.kill_families(self._start_times, _ABANDON_SECONDS)
        for local_rank, pid in list(self._running.items()):
            del self._running[local_rank]
            yield WorkerExit(self._attempt, local_rank, pid, _SIGKILL_STATUS, time.time_ns())

    def _post_kept_exits(self) -> None:
        for report in self._client.kept_reports():
            for exit_ in self._exits_of(report):
                self._inbox.post(exit_)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self._inbox.unwatch(self._client.channel)

    def _exits_of(self, report: dict[str, Any]) -> Iterator[WorkerExit]:
        if report["event"] != "exited":
            return
        attempt, _, rank = report["id"].partition("/")
        local_rank, status = int(rank), report["status"]
        value = None
        if int(attempt) == self._attempt:
            self._running.pop(local_rank, None)
            value = self._commands[local_rank].value() if status == 0 else None
        yield WorkerExit(
            int(attempt),
            local_rank,
            report["pid"],
            status,
            report["time_ns"],
            return_value=value,
            usage={key: report[key] for key in ("cpu_seconds", "max_rss_kb")},
        )

    def _id(self, local_rank: int) -> str:
        return f"{self._attempt}/{local_rank}"


def open_pump(
    on_problem: Callable[[str], None], is_silenced: Callable[[], bool] | None = None
) -> StreamPump:
    """A pump for one attempt. Raises LaunchError."""
    try:
        return StreamPump(on_problem, is_silenced)
    except OSError as error:
        raise LaunchError(
            f"cannot start workers: {error.strerror}", hint=_start_hint(error.errno)
        ) from error


def open_streams(pump: StreamPump, launch: WorkerLaunch, opened: list[int]) -> Iterator[int]:
    """Descriptors for a worker's 1 and 2; those that are ours to close are put into ``opened``."""
    streams = launch.streams
    for name, plan in (("stdout", streams.stdout), ("stderr", streams.stderr)):
        try:
            fd, ours = pump.open(launch.local_rank, name, plan)
        except OSError as error:
            what = error.strerror if plan.file is None else f"{error.strerror}: {plan.file}"
            raise LaunchError(
                f"cannot open the {name} of local rank {launch.local_rank}: {what}",
                hint="choose a writable --log-dir with free space; see ulimit -n for open files",
            ) from error
        if ours:
            opened.append(fd)
        yield fd


def _command(request: StartRequest, launch: WorkerLaunch) -> Command:
    argv = (str(request.entrypoint), *(str(arg) for arg in launch.args))
    if request.numa_options is None:
        return Command(argv)
    from torch.numa.binding import _maybe_wrap_command_args_with_numa_binding

    bound = _maybe_wrap_command_args_with_numa_binding(
        argv, gpu_index=launch.local_rank, numa_options=request.numa_options
    )
    return Command(tuple(str(part) for part in bound))


def _start_hint(code: int | None) -> str:
    match code:
        case errno.ENOENT:
            return "check the spelling and the PATH; a Python script needs no --no-python"
        case errno.EACCES:
            return "make the file executable, or drop --no-python to run it with Python"
        case errno.ENOEXEC:
            return "the program needs a first line such as #!/bin/sh"
        case errno.EAGAIN | errno.ENOMEM | errno.EMFILE:
            return "the system is at a limit: see ulimit -u, ulimit -n and the free memory"
        case errno.E2BIG:
            return "the arguments and the environment are too long"
        case _:
            return "run the command by itself to see why the system refuses it"
