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
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlrover_cli.workers import process_title
from dlrover_cli.workers.apprentice import Apprentice, names_in
from dlrover_cli.workers.apprentice import serve as serve_apprentice
from dlrover_cli.workers.as_new import LAUNCHERS_OWN, flush_streams, forget_modules, renew_seeds
from dlrover_cli.workers.bootstrap import WORKER_DIRECTORY
from dlrover_cli.workers.bootstrap.in_worker.modules import MODULES_FILE
from dlrover_cli.workers.light_exit import note_shared
from dlrover_cli.workers.nursery import Channel, Nursery, end_with_parent, outlive_parent
from dlrover_cli.workers.shadowing import hidden_module
from dlrover_cli.workers.warm_worker import OUR_PACKAGE, WarmWorker

_BROKEN = 70
_IDLE_SECONDS = 0.3
_BREATH_SECONDS = 0.01
_LONGEST_PATIENCE = 30.0
# Without the current directory, where a worker's program need not look for modules.
_SOURCE = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); "
    "from dlrover_cli.workers.zygote import main; main(*sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Upbringing:
    """What a zygote gives to its workers."""

    preloads: tuple[str, ...] = ()
    beside: str | None = None
    """Where workers look first for modules, their program's directory; it is not in ``sys.path``
    yet."""
    learns: bool = False
    """Whether what the first workers load is loaded for the next ones too."""


def command(channel: int, upbringing: Upbringing) -> list[str]:
    """How a zygote is executed; it has the interpreter options that workers have."""
    return [sys.executable, "-u", "-c", _SOURCE, str(channel), json.dumps(asdict(upbringing))]


def main(channel: str, upbringing: str) -> None:
    """An executed zygote; a worker that is forked from it returns from here at its end."""
    become_zygote(socket.socket(fileno=int(channel)), Upbringing(**json.loads(upbringing)))


def become_zygote(sock: socket.socket, upbringing: Upbringing) -> None:
    """Serve the agent at the other end, and do not return from that; return at a worker's end.

    Whatever ends a worker, an exception too, comes out of here for the interpreter to deal with.
    """
    sock.set_inheritable(False)
    process_title.write(("dlrover-zygote",))
    forget_modules(LAUNCHERS_OWN)
    own_pid = os.getpid()
    zygote = Zygote(Channel(sock), upbringing)
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

    def __init__(self, channel: Channel, upbringing: Upbringing) -> None:
        super().__init__(channel)
        self._preloads = upbringing.preloads
        self._beside = upbringing.beside
        self._lesson: str | None = None
        """The file in which the first worker writes what it loads."""
        self._learns = upbringing.learns
        self._patience = _IDLE_SECONDS
        self._apprentice: Apprentice | None = None
        self._trusted = False
        self._waiting: dict[int, Channel] = {}
        """Forked ahead: by pid, the channel that each waits at."""
        self._expected = 0
        self._is_idle = False

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
        _settle()
        seconds = time.monotonic() - started
        with contextlib.suppress(OSError):  # the agent is gone, as the next look will show
            self._channel.send({"event": "warm", "problem": problem, "seconds": seconds})

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        self._is_idle = False
        if message["op"] == "expect":
            self._expected = message["count"] if self._trusted else 0
        else:
            super()._handle(message, fds)

    def _fork_worker(self, message: dict[str, Any], fds: list[int]) -> int:
        if not message.get("warm") or not self._trusted:
            return super()._fork_worker(message, fds)
        learn = self._note_lesson(message["env"])
        ready = self._wake_one(message, fds)
        if ready is not None:
            return ready
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave_home(parent)
            self._forget_everything()
            raise _Born(WarmWorker.from_message(message, fds, learn=learn))
        return pid

    def _idle_after(self) -> float | None:
        if len(self._waiting) < self._expected:
            return _BREATH_SECONDS if self._is_idle else _IDLE_SECONDS
        return None if self._lesson is None else self._patience

    def _when_idle(self) -> None:
        """Fork ahead, one at a time, since requests may come in between; then learn."""
        self._is_idle = True
        if len(self._waiting) < self._expected:
            self._fork_one_ahead()
        elif self._apprentice is None:
            self._take_apprentice()
        elif self._apprentice.has_answered():
            self._lesson = None
            if self._apprentice.is_ready:
                self._dismiss()  # for others that have learned more

    def _note_lesson(self, env: Mapping[str, str]) -> bool:
        """Whether this worker is the one to learn from: the first one, and once is enough."""
        if not self._learns or WORKER_DIRECTORY not in env:
            return False
        self._learns = False
        directory = os.fsdecode(env[WORKER_DIRECTORY].encode("latin-1"))
        self._lesson = os.path.join(directory, MODULES_FILE)
        return True

    def _take_apprentice(self) -> None:
        names = names_in(self._lesson) if self._lesson is not None else ()
        if not names:
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            return
        zygote = os.getpid()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            process_title.write(("dlrover-learner",))
            end_with_parent()
            self._forget_everything()
            channel = serve_apprentice(
                Channel(theirs), lambda: _learn(names, self._beside), zygote, self._leave_home
            )
            process_title.write(("dlrover-learned",))
            raise _Born(_await_birth(channel))
        theirs.close()
        self._apprentice = Apprentice(pid, Channel(ours))
        self._patience = _IDLE_SECONDS

    def _fork_one_ahead(self) -> None:
        if self._apprentice is not None and self._apprentice.is_ready:
            raised = self._apprentice.fork_ahead()
            if raised is not None:
                self._waiting[raised[0]] = raised[1]
                return
            self._apprentice.is_ready = False
        parent = os.getpid()
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError:  # at a limit; those that are really needed may still find room
            self._expected = 0
            return
        if pid == 0:
            ours.close()
            process_title.write(("dlrover-standby",))
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
        spared = set(self._waiting)
        if self._apprentice is not None:
            spared.add(self._apprentice.pid)
        return [pid for pid in super()._all_below() if pid not in spared]

    def kill_everything(self) -> None:
        self._dismiss_all()
        super().kill_everything()

    def _dismiss(self) -> None:
        """Those that wait end when their channels close."""
        for channel in self._waiting.values():
            channel.close()
        self._waiting.clear()

    def _dismiss_all(self) -> None:
        self._dismiss()
        if self._apprentice is not None:
            self._apprentice.close()
            self._apprentice = None

    def relay(self) -> None:
        self._dismiss_all()
        super().relay()

    def _forget_everything(self) -> None:
        """In a child: what is open here is the zygote's business."""
        self._channel.close()
        self._dismiss_all()
        self.release()


def _await_birth(channel: Channel) -> WarmWorker:
    """Do what can be done ahead, then wait to be needed; end if the zygote goes."""
    renew_seeds()
    while True:
        try:
            for message, fds in channel.receive():
                channel.close()
                return WarmWorker.from_message(message, fds, has_seeds=True)
        except EOFError:
            os._exit(0)


def _settle() -> None:
    """Once, for all that are forked from here: what each of them would have to do, and copy."""
    forget_modules((OUR_PACKAGE,))
    note_shared()
    gc.freeze()  # what is never collected is never written to, and stays shared
    gc.enable()


def _learn(names: Sequence[str], beside: str | None) -> str | None:
    """In an apprentice: load what others have loaded, as far as it goes without a trace."""
    gc.disable()
    for name in names:
        load([name])  # one that wants to be imported in another way is left to the script
    flush_streams()
    _settle()
    return _what_is_left() or _what_is_hidden(beside)


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
    if _has_touched_a_device():
        return "loading the modules for the workers has touched a GPU, which no fork survives"
    return None


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True


def _has_touched_a_device() -> bool:
    """Only a fork knows: counting devices is enough to spoil it, and leaves no other trace."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(int(torch.cuda._is_in_bad_fork()))
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


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
