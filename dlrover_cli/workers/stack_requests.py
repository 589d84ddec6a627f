"""Asking a worker for its Python stacks: one thread after the other, each writes down its own.

A thread that writes down the stacks of others looks at frames which those change meanwhile, and one
time in many the interpreter crashes on it: a question must not be able to end a training. So every
thread gets the signal itself, and the next one when it is done, since they share a file. The main
thread comes first; nobody waits long for another one.

The signal must not end up with the script. The worker's page tells which one the script leaves to
us, and is locked while it is on its way.
"""

import ctypes
import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlrover_cli.workers.beats import BeatPage

_LONGEST_DUMP = 1 << 18
# What a thread other than the main one gets if it neither works nor answers.
_THREAD_SECONDS = 0.2
# Looks that must find a thread without the signal and without a word from it; between taking a
# signal and blocking it, the kernel shows neither.
_LOOKS_AT_SILENCE = 2
_HEADER = b"Stack (most recent call first):\n"
_STATES = {"D": "uninterruptible", "R": "running", "S": "sleeping", "t": "traced"}


@dataclass(slots=True)
class StackRequest:
    """One worker that is asked. `send` once, `is_answered` until it is so, then `answer`."""

    pid: int
    path: Path
    """Where its threads write."""
    page: BeatPage
    _signal: int = 0
    """What asks it; 0 as long as it was not asked."""
    _lock: int | None = None
    _handle: int | None = None
    _refusal: str = ""
    _waiting: list[int] = field(default_factory=list)
    """The threads that are still to be asked."""
    _asked: "_Thread | None" = None
    _main: bytes = b""
    _others: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self) -> None:
        try:
            self._handle = os.pidfd_open(self.pid)
            threads = sorted(map(int, os.listdir(f"/proc/{self.pid}/task")))
            self._waiting = [thread for thread in threads if thread != self.pid]
        except ProcessLookupError:
            self._refusal = "it has ended"
        except OSError as error:
            self._refusal = f"{error.strerror}: {error.filename}"
        else:
            self._begin()

    def is_answered(self) -> bool:
        """Whether nothing more is to come."""
        if not self._refusal and not self._signal:
            self._begin()
        if self._refusal:
            return True
        if not self._signal:
            return _cannot_answer(self.pid)
        while self._asked is not None:
            if not self._is_done(self._asked):
                return self._asked.id == self.pid and _cannot_answer(self.pid)
            self._take(self._asked)
            self._asked = None
            with suppress(OSError):  # it ends: what has been said stays
                self._ask_the_next()
        return True

    def answer(self) -> str:
        """The stacks of all threads, the main one last, or a sentence why there is none."""
        if self._asked is not None:  # time is up; what it has written so far is better than nothing
            self._take(self._asked)
        if not self._main:
            why = self._refusal or f"no answer ({_why_silent(self.pid, self._signal)})"
            return f"no Python stack: {why}"
        parts = [
            b"Thread %d (most recent call first):\n%s\n" % (thread, text)
            for thread, text in self._others
        ]
        parts.append(b"Current thread %d (most recent call first):\n%s" % (self.pid, self._main))
        return b"".join(parts).decode("utf-8", "replace")

    def close(self) -> None:
        for descriptor in (self._lock, self._handle):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self._handle = None

    def _begin(self) -> None:
        """Ask the main thread, unless it is in no state to be asked now; then try again."""
        try:
            self._lock = self.page.lock()
            if self._lock is None:
                return
            number = self.page.read().stack_signal
            # After the handle was opened: what is read here is true of the process it stands for.
            status = _status(self.pid)
            if not number or not _has_signal(status, "SigCgt", number):
                self._refusal = "it does not answer; no Python worker, or it became another program"
            elif not _has_signal(status, "SigBlk", number):
                self._signal = number
                self._ask(self.pid)
        except ProcessLookupError:
            self._refusal = "it has ended"
        except OSError as error:
            self._refusal = f"{error.strerror}: {error.filename}"
        finally:
            if self._lock is not None and not self._signal:
                os.close(self._lock)
                self._lock = None

    def _ask_the_next(self) -> None:
        while self._waiting and self._asked is None:
            self._ask(self._waiting.pop(0))

    def _ask(self, thread: int) -> None:
        """Send the signal, unless the thread would never take it. Raises OSError."""
        if self._handle is None:
            return
        if thread != self.pid and _has_signal(
            _status(f"{self.pid}/task/{thread}"), "SigBlk", self._signal
        ):
            return
        self._asked = _Thread(thread, self.path.stat().st_size)
        signal.pidfd_send_signal(self._handle, 0)  # still the process that we mean
        if not _send_to_thread(self.pid, thread, self._signal):
            self._waiting.clear()
            signal.pidfd_send_signal(self._handle, self._signal)  # as a rule, to the main thread

    def _is_done(self, thread: "_Thread") -> bool:
        """The kernel blocks a signal in the thread that handles it, until the handler returns."""
        status = _status(f"{self.pid}/task/{thread.id}")
        is_main = thread.id == self.pid
        if not status:
            return not is_main
        has_written = self._written_by(thread).endswith(b"\n")
        if not any(_has_signal(status, mask, self._signal) for mask in ("SigPnd", "SigBlk")):
            thread.looks += 1
            return has_written or (not is_main and thread.looks >= _LOOKS_AT_SILENCE)
        # On a busy machine it waits for a processor, perhaps in the middle of a line.
        if is_main or _state_in(status) == "R":
            return False
        return time.monotonic() - thread.since >= _THREAD_SECONDS

    def _take(self, thread: "_Thread") -> None:
        text = self._written_by(thread).removeprefix(_HEADER)
        if thread.id == self.pid:
            self._main = text
        elif text:
            self._others.append((thread.id, text))

    def _written_by(self, thread: "_Thread") -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(thread.offset)
                return file.read(_LONGEST_DUMP)
        except OSError:
            return b""


@dataclass(slots=True)
class _Thread:
    """The thread that is being asked."""

    id: int
    offset: int
    since: float = field(default_factory=time.monotonic)
    looks: int = 0


def _send_to_thread(pid: int, thread: int, signum: int) -> bool:
    """Whether the C library can do so; raises OSError if it could not be done."""
    tgkill = getattr(ctypes.CDLL(None, use_errno=True), "tgkill", None)
    if tgkill is None:  # glibc before 2.30
        return False
    if tgkill(pid, thread, signum) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _status(process: int | str) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""


def _has_signal(status: str, mask: str, signum: int) -> bool:
    found = re.search(rf"^{mask}:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (signum - 1) & 1)


def _cannot_answer(pid: int) -> bool:
    """Gone, or stopped by a signal or a debugger."""
    return _state_in(_status(pid)) in ("", "Z", "X", "T", "t")


def _state_in(status: str) -> str:
    found = re.search(r"^State:\s*(\w)", status, re.MULTILINE)
    return "" if found is None else found[1]


def _why_silent(pid: int, signum: int) -> str:
    """Of one that has not written anything; ``signum`` is 0 if it could not be asked."""
    status = _status(pid)
    state = _state_in(status)
    if state in ("", "Z", "X"):
        return "it has ended"
    if state == "T":
        return "it is stopped; SIGCONT lets it go on"
    if not signum:
        return "it blocks the signal that asks for a stack; try --native"
    if state in ("R", "S") and not _has_signal(status, "SigPnd", signum):
        return f"its native code handles signal {signum}, which asks for a stack; try --native"
    words = f"it is {_STATES.get(state, state)}"
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        where = ""
    return f"{words} in the kernel's {where}" if where not in ("", "0") else words
