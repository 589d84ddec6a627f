"""Function workers that multiprocessing forks, from this process or from its fork server.

They are not children of the nursery, which only guards them: should the agent die, it kills them,
what is below them and what is in their sessions. A daemon that left both is beyond its reach.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers import nursery
from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerLaunch
from dlrover_cli.workers.commands import NurseryClient, open_pump, open_streams
from dlrover_cli.workers.function_call import (
    Descriptor,
    FunctionCall,
    ReturnSlot,
    call_of,
    cannot_start,
)
from dlrover_cli.workers.inbox import Inbox

_ABANDON_SECONDS = 5.0
_UNKNOWN_STATUS = 255  # somebody else has waited for our child
# Held back around a fork: until it has put them away, the child has our handlers.
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class ForkedFunctions:
    """One attempt's forked function workers."""

    def __init__(
        self,
        request: StartRequest,
        inbox: Inbox,
        context: BaseContext,
        name: str,
        guard: NurseryClient,
        on_problem: Callable[[str], None],
    ) -> None:
        self._attempt = request.attempt
        self._inbox = inbox
        self._guard = guard
        self._pump = open_pump(on_problem)
        self._workers: dict[int, _Worker] = {}
        try:
            for launch in request.launches:
                slot = ReturnSlot(launch.local_rank)
                process = self._start_one(request, launch, slot, context, name)
                self._workers[launch.local_rank] = _Worker(process, slot)
        except LaunchError:
            self._abandon()
            raise
        guard.request({"op": "guard", "pids": list(self.pids().values())})
        self._pump.start()
        for local_rank, worker in self._workers.items():
            inbox.watch(worker, partial(self._read_exit, local_rank))

    def pids(self) -> dict[int, int]:
        return {local_rank: worker.pid for local_rank, worker in self._workers.items()}

    def signal(self, local_rank: int, signum: int) -> None:
        worker = self._workers[local_rank]
        if worker.process.is_alive():
            worker.signal(signum)

    def kill(self, deadline: float) -> list[int]:
        leaders = {worker.pid: worker.started for worker in self._workers.values()}
        stuck = nursery.kill_families(leaders, deadline)
        for worker in self._workers.values():
            worker.process.join(0)
        return stuck

    def last_output(self, local_rank: int) -> float | None:
        return self._pump.last_output(local_rank)

    def tail(self, local_rank: int) -> str | None:
        return self._pump.tail(local_rank, "stderr")

    def close(self) -> None:
        for worker in self._workers.values():
            self._stop_watching(worker)
            worker.close()
        for relay in self._pump.finish():
            self._guard.relay(relay)

    def _abandon(self) -> None:
        self.kill(_ABANDON_SECONDS)
        for worker in self._workers.values():
            worker.close()
        for relay in self._pump.finish():
            relay.close()

    def _start_one(
        self,
        request: StartRequest,
        launch: WorkerLaunch,
        slot: ReturnSlot,
        context: BaseContext,
        name: str,
    ) -> BaseProcess:
        opened: list[int] = []
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            stdio = [Descriptor(fd) for fd in open_streams(self._pump, launch, opened)]
            process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=_in_worker,
                args=(call_of(request, launch, slot), stdio),
                name=f"{name}{launch.local_rank}",
            )
            process.start()
        except LaunchError:
            slot.close()
            raise
        # The boundary to objects of the user, whose pickling may raise anything.
        except Exception as error:
            slot.close()
            raise cannot_start(error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
            for fd in opened:
                os.close(fd)
        return process

    def _read_exit(self, local_rank: int) -> Iterator[WorkerExit]:
        worker = self._workers[local_rank]
        self._stop_watching(worker)
        worker.process.join()
        status = worker.process.exitcode
        yield WorkerExit(
            self._attempt,
            local_rank,
            worker.pid,
            _UNKNOWN_STATUS if status is None else status,
            time.time_ns(),
            return_value=worker.slot.value() if status == 0 else None,
        )

    def _stop_watching(self, worker: "_Worker") -> None:
        if worker.watched:
            worker.watched = False
            self._inbox.unwatch(worker)


class _Worker:
    """A process of multiprocessing with something to watch that tells of its end."""

    def __init__(self, process: BaseProcess, slot: ReturnSlot) -> None:
        self.process = process
        self.slot = slot
        self.pid = process.pid or 0
        self.started = nursery.start_time(self.pid)
        self.watched = True
        self._pidfd: int | None = None
        # A child of ours is there until we wait for it. Its sentinel, the pipe that
        # multiprocessing keeps, would be held open by whatever the child forks in its turn.
        if os.getpid() == nursery.parent_of(self.pid):
            self._pidfd = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        return self.process.sentinel if self._pidfd is None else self._pidfd

    def signal(self, signum: int) -> None:
        """To the worker's process group; to it alone where it has not made one yet."""
        try:
            os.killpg(self.pid, signum)
        except ProcessLookupError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def close(self) -> None:
        self.slot.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        with contextlib.suppress(ValueError):  # one that cannot be killed stays as it is
            self.process.close()


def _in_worker(call: FunctionCall, stdio: list[Descriptor]) -> None:
    """What a forked worker does first: become independent of what it was forked from."""
    os.setsid()
    nursery.end_with_parent()
    signal.set_wakeup_fd(-1)
    for signum in _HANDLED:
        if signal.getsignal(signum) != signal.SIG_IGN:
            default = signum == signal.SIGINT
            signal.signal(signum, signal.default_int_handler if default else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    for number, descriptor in enumerate(stdio, start=1):
        os.dup2(descriptor.fd, number)
    call()
