"""A nursery that has torch loaded: it forks workers instead of starting interpreters.

It is forked from a launcher that has imported torch and has one thread, or executed where there is
no such launcher. It loads what a training needs while the agent is in its rendezvous, then serves
requests as every nursery does. A request with ``"warm": true`` becomes a fork that runs the Python
program of its ``argv``; everything else is executed as in a cold nursery.

The zygote never runs a tensor operation, never touches a device and has one thread, since a fork
copies no other. Should loading leave it with more, it says so and forks nothing.

More requests       {"op": "expect", "count"}             when idle, fork so many ahead
More reports        {"event": "warm", "problem": str | null, "seconds"}
"""

import contextlib
import gc
import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from dlrover_cli.workers.as_new import LAUNCHERS_OWN, flush_streams, forget_modules
from dlrover_cli.workers.nursery import Channel, Nursery, end_with_parent, outlive_parent
from dlrover_cli.workers.shadowing import hidden_module
from dlrover_cli.workers.warm_worker import OUR_PACKAGE, WarmWorker

_BROKEN = 70
_IDLE_SECONDS = 0.5
# Without the current directory, where a worker's program need not look for modules.
_SOURCE = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); "
    "from dlrover_cli.workers.zygote import main; main(*sys.argv[1:])"
)


def command(channel: int, preloads: Sequence[str], beside: str | None) -> list[str]:
    """How a zygote is executed; it has the interpreter options that workers have."""
    return [sys.executable, "-u", "-c", _SOURCE, str(channel), beside or "", *preloads]


def main(channel: str, beside: str, *preloads: str) -> None:
    """An executed zygote; a worker that is forked from it returns from here at its end."""
    become_zygote(socket.socket(fileno=int(channel)), preloads, beside or None)


def become_zygote(sock: socket.socket, preloads: Sequence[str], beside: str | None) -> None:
    """Serve the agent at the other end, and do not return from that; return at a worker's end.

    ``beside`` is where workers look first for modules, their program's directory; nothing has that
    place in ``sys.path`` yet. Whatever ends a worker, an exception too, comes out of here for the
    interpreter to deal with.
    """
    sock.set_inheritable(False)
    forget_modules(LAUNCHERS_OWN)
    own_pid = os.getpid()
    zygote = Zygote(Channel(sock), tuple(preloads), beside)
    try:
        worker = zygote.raise_worker()
    # Nothing may come out of here that is not a worker's: below us is a launcher's stack.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        if os.getpid() == own_pid:
            zygote.kill_everything()
        os._exit(_BROKEN)
    if worker is None:
        os._exit(0)
    worker.run()


class _Born(BaseException):
    """Takes a forked worker out of the zygote's stack."""

    def __init__(self, worker: WarmWorker) -> None:
        self.worker = worker


class Zygote(Nursery):
    """Serves one agent; its children are workers in all but name."""

    def __init__(self, channel: Channel, preloads: Sequence[str], beside: str | None) -> None:
        super().__init__(channel)
        self._preloads = preloads
        self._beside = beside
        self._trusted = False
        self._waiting: dict[int, Channel] = {}
        """Forked ahead: by pid, the channel that each waits at."""
        self._expected = 0

    def raise_worker(self) -> WarmWorker | None:
        """Serve until the agent leaves. Returns a worker in each process that is forked."""
        self.settle_in()
        end_with_parent()  # as long as it cannot hear that the agent is gone
        self._warm_up()
        outlive_parent()
        try:
            self.serve()
        except _Born as born:
            return born.worker
        return None

    def _warm_up(self) -> None:
        started = time.monotonic()
        gc.disable()  # imports make next to no garbage
        own_pid = os.getpid()
        problem = load(self._preloads)
        if os.getpid() != own_pid:  # a module has forked, and this is its child
            os._exit(0)
        flush_streams()
        problem = problem or _what_is_left() or _what_is_hidden(self._beside)
        self._trusted = problem is None
        gc.freeze()  # what is never collected is never written to, and stays shared
        gc.enable()
        seconds = time.monotonic() - started
        with contextlib.suppress(OSError):  # the agent is gone, as the next look will show
            self._channel.send({"event": "warm", "problem": problem, "seconds": seconds})

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["op"] == "expect":
            self._expected = message["count"] if self._trusted else 0
        else:
            super()._handle(message, fds)

    def _fork_worker(self, message: dict[str, Any], fds: list[int]) -> int:
        if not message.get("warm") or not self._trusted:
            return super()._fork_worker(message, fds)
        ready = self._wake_one(message, fds)
        if ready is not None:
            return ready
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave_home(parent)
            self._forget_everything()
            raise _Born(WarmWorker.from_message(message, fds))
        return pid

    def _idle_after(self) -> float | None:
        return _IDLE_SECONDS if len(self._waiting) < self._expected else None

    def _when_idle(self) -> None:
        """Fork one ahead; one at a time, since requests may come in between."""
        parent = os.getpid()
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError:  # at a limit; those that are really needed may still find room
            self._expected = 0
            return
        if pid == 0:
            ours.close()
            self._leave_home(parent)
            self._forget_everything()
            raise _Born(_await_birth(Channel(theirs)))
        theirs.close()
        self._waiting[pid] = Channel(ours)

    def _wake_one(self, message: dict[str, Any], fds: list[int]) -> int | None:
        while self._waiting:
            pid, channel = self._waiting.popitem()
            try:
                channel.send(message, fds)
            except OSError:  # somebody killed it while it waited
                continue
            finally:
                channel.close()
            return pid
        return None

    def _all_below(self) -> list[int]:
        return [pid for pid in super()._all_below() if pid not in self._waiting]

    def kill_everything(self) -> None:
        self._dismiss()
        super().kill_everything()

    def _dismiss(self) -> None:
        """Those that wait end when their channels close."""
        for channel in self._waiting.values():
            channel.close()
        self._waiting.clear()

    def relay(self) -> None:
        self._dismiss()
        super().relay()

    def _forget_everything(self) -> None:
        """In a child: what is open here is the zygote's business."""
        self._channel.close()
        self._dismiss()
        self.release()


def _await_birth(channel: Channel) -> WarmWorker:
    """Wait to be needed; end if the zygote goes."""
    while True:
        try:
            for message, fds in channel.receive():
                channel.close()
                return WarmWorker.from_message(message, fds)
        except EOFError:
            os._exit(0)


def load(modules: Sequence[str]) -> str | None:
    """Import these; the first problem in words, or None."""
    for name in modules:
        try:
            importlib.import_module(name)
        # Whatever a module of somebody else's does when it is imported, sys.exit() included.
        except BaseException as error:  # noqa: BLE001
            return f"{name} cannot be loaded ahead: {type(error).__name__}: {error}"
    return None


def _what_is_left() -> str | None:
    """What a worker would have to have of its own, and a fork cannot give it."""
    if not is_single_threaded():
        return "loading the modules for the workers has left a thread running"
    if _has_children():
        return "loading the modules for the workers has left a process running"
    return None


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True


def _what_is_hidden(beside: str | None) -> str | None:
    hidden = None if beside is None else hidden_module(beside, except_for=(OUR_PACKAGE,))
    if hidden is None:
        return None
    name, file = hidden
    return f"{file} hides {name}, which warm workers have loaded"


def is_single_threaded() -> bool:
    """Whether a fork leaves this process with one thread.

    OpenBLAS ends its threads at a fork, in the parent too, so the look comes after one.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1
