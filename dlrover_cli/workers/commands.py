"""Workers that are commands: fresh processes, started by the nursery that is their parent."""

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers import nursery
from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerLaunch
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPump

_SIGKILL_STATUS = -9


class NurseryClient:
    """The agent's end of one nursery process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", nursery.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                close_fds=True,
            )
        self.channel = nursery.Channel(ours)
        self._reports: list[dict[str, Any]] = []
        self.alive = True

    def request(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a request; a nursery that is gone is noticed by its missing reports."""
        if not self.alive:
            return
        try:
            self.channel.send(message, fds)
        except OSError:
            self.alive = False

    def await_report(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Block until a wanted report comes; keep the others. None if the nursery is gone."""
        while self.alive:
            for index, report in enumerate(self._reports):
                if wanted(report):
                    return self._reports.pop(index)
            self._read()
        return None

    def take_reports(self) -> Iterator[dict[str, Any]]:
        """All reports at hand, after one read from the channel."""
        self._read()
        yield from self.kept_reports()

    def kept_reports(self) -> Iterator[dict[str, Any]]:
        """The reports that an earlier wait had to pass over."""
        while self._reports:
            yield self._reports.pop(0)

    def close(self) -> None:
        """Close the channel, which ends the nursery, and reap it."""
        self.channel.close()
        self._process.wait()

    def _read(self) -> None:
        try:
            self._reports += [message for message, _ in self.channel.receive()]
        except EOFError:
            self.alive = False


class CommandStarter:
    """Starts command workers through one nursery, which is replaced should it ever die."""

    def __init__(self, on_problem: Callable[[str], None]) -> None:
        self._on_problem = on_problem
        # Started at once: its interpreter comes up while the agent imports torch.
        self._nursery = NurseryClient()

    def start(self, request: StartRequest, inbox: Inbox) -> "CommandWorkers":
        """Start every worker of the request or none. Raises LaunchError."""
        if not self._nursery.alive:
            self._nursery.close()
            self._nursery = NurseryClient()
        return CommandWorkers(request, inbox, self._nursery, self._on_problem)

    def close(self, *, leave_survivors: bool) -> None:
        """End the nursery; unless told to leave them, it kills whatever is left below it."""
        if leave_survivors:
            self._nursery.request({"op": "leave"})
        self._nursery.close()


class CommandWorkers:
    """One attempt's command workers."""

    def __init__(
        self,
        request: StartRequest,
        inbox: Inbox,
        client: NurseryClient,
        on_problem: Callable[[str], None],
    ) -> None:
        self._attempt = request.attempt
        self._inbox = inbox
        self._client = client
        self._pump = StreamPump(on_problem)
        self._running: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        for launch in request.launches:
            self._start_one(request, launch)
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
        return [] if swept is None else list(swept["stuck"])

    def tail(self, local_rank: int) -> str | None:
        return self._pump.tail(local_rank, "stderr")

    def close(self) -> None:
        self._stop_watching()
        self._pump.finish()

    def _start_one(self, request: StartRequest, launch: WorkerLaunch) -> None:
        argv = _command_line(request, launch)
        opened: list[int] = []
        try:
            fds = [self._open_stdin(opened)]
            for name, plan in (
                ("stdout", launch.streams.stdout),
                ("stderr", launch.streams.stderr),
            ):
                fd, ours = self._pump.open(launch.local_rank, name, plan)
                fds.append(fd)
                if ours:
                    opened.append(fd)
            self._client.request(
                {
                    "op": "start",
                    "id": self._id(launch.local_rank),
                    "argv": argv,
                    "env": dict(launch.env),
                    "fds": len(fds),
                },
                tuple(fds),
            )
        except OSError as error:
            self._abandon()
            raise LaunchError(
                f"cannot open the log of local rank {launch.local_rank}: "
                f"{error.strerror}: {error.filename}",
                hint="choose a writable --log-dir with free space",
            ) from error
        finally:
            for fd in opened:
                os.close(fd)
        self._await_start(argv[0], launch.local_rank)

    @staticmethod
    def _open_stdin(opened: list[int]) -> int:
        try:
            os.fstat(0)
        except OSError:  # the launcher was started without one
            opened.append(os.open(os.devnull, os.O_RDONLY))
            return opened[-1]
        return 0

    def _await_start(self, program: str, local_rank: int) -> None:
        id_ = self._id(local_rank)
        report = self._client.await_report(
            lambda report: (
                report.get("id") == id_ and report["event"] in ("started", "start_failed")
            )
        )
        if report is None:
            self._abandon()
            raise LaunchError("the process that starts the workers has died", hint="run it again")
        if report["event"] == "start_failed":
            self._abandon()
            raise LaunchError(
                f"cannot start {program!r}: {report['error']}", hint=_start_hint(report["errno"])
            )
        self._pids[local_rank] = self._running[local_rank] = report["pid"]

    def _abandon(self) -> None:
        self._client.request({"op": "sweep", "deadline": 5.0})
        self._client.await_report(lambda report: report["event"] == "swept")
        list(self._client.kept_reports())
        self._pump.finish()

    def _read_exits(self) -> Iterator[WorkerExit]:
        for report in self._client.take_reports():
            yield from self._exits_of(report)
        if not self._client.alive:
            # Its death took the workers with it (parent-death signal); say so for each of them.
            self._stop_watching()
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
        attempt, _, local_rank = report["id"].partition("/")
        if int(attempt) == self._attempt:
            self._running.pop(int(local_rank), None)
        yield WorkerExit(
            int(attempt),
            int(local_rank),
            report["pid"],
            report["status"],
            report["time_ns"],
            usage={key: report[key] for key in ("cpu_seconds", "max_rss_kb")},
        )

    def _id(self, local_rank: int) -> str:
        return f"{self._attempt}/{local_rank}"


def _command_line(request: StartRequest, launch: WorkerLaunch) -> list[str]:
    argv = [str(request.entrypoint), *(str(arg) for arg in launch.args)]
    if request.numa_options is None:
        return argv
    from torch.numa.binding import _maybe_wrap_command_args_with_numa_binding

    return [
        str(part)
        for part in _maybe_wrap_command_args_with_numa_binding(
            tuple(argv), gpu_index=launch.local_rank, numa_options=request.numa_options
        )
    ]


def _start_hint(code: int) -> str:
    match code:
        case errno.ENOENT:
            return "check the spelling and the PATH; a Python script needs no --no-python"
        case errno.EACCES:
            return "make the file executable, or drop --no-python to run it with Python"
        case errno.ENOEXEC:
            return "the program needs a first line such as #!/bin/sh"
        case _:
            return "run the command by itself to see why the system refuses it"
