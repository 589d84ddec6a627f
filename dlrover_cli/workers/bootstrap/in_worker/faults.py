"""Python stacks from a worker that crashes, or that is asked for them while it hangs.

faulthandler writes both without running Python code, so they come out even when the main thread
sits in C and never returns.
"""

import faulthandler
import os
import sys

from . import page as layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

# Real-time signals, the first choice far from both ends of their range, where runtimes, profilers
# and debuggers take theirs. The default action ends a process: send one only to who catches it.
_FIRST_CHOICE = 57
_CHOICES = sorted(range(35, 64), key=lambda number: abs(number - _FIRST_CHOICE))
FAULT_FILE = "fault.txt"
STACKS_FILE = "stacks.txt"

_descriptors: list[int] = []


def enable(directory: str) -> None:
    """Dump to ``fault.txt`` on a fatal signal."""
    if not faulthandler.is_enabled():  # the user's -X faulthandler or PYTHONFAULTHANDLER wins
        faulthandler.enable(file=_open(directory, FAULT_FILE), all_threads=True)


class StackSignal:
    """The signal on which this worker writes its stacks to ``stacks.txt``; the page has its number.

    Each thread writes its own stack only: those of threads that go on meanwhile cannot be read
    without the danger of a crash. A script that wants the signal for itself gets it, and another
    one takes its place.
    """

    def __init__(
        self, directory: str, page: layout.Page, note: "Callable[[Exception], None]"
    ) -> None:
        self._page = page
        self._pid = os.getpid()
        self._fd = _open(directory, STACKS_FILE)
        self._note = note
        self._number = 0
        self._take(_FIRST_CHOICE)

    def watch(self, signals: "ModuleType") -> None:
        """Make way when the script sets a handler for it, or wants to wait for it (signal)."""
        self._watch_handlers(signals)
        self._watch_masks(signals)

    def _watch_handlers(self, signals: "ModuleType") -> None:
        # Not signal.signal itself: a wrapper around that would show in users' tracebacks, and it
        # raises wherever somebody calls it in a thread.
        convert = signals._enum_to_int
        setting = signals.signal.__code__

        def enum_to_int(value: "Any") -> "Any":
            number = convert(value)
            if type(number) is int and sys._getframe(1).f_code is setting:
                self._leave_to_script((number,))
            return number

        signals._enum_to_int = enum_to_int  # type: ignore[attr-defined]

    def _watch_masks(self, signals: "ModuleType") -> None:
        original = signals.pthread_sigmask

        def pthread_sigmask(how: "Any", mask: "Any") -> "Any":
            wanted = list(mask)
            if how != signals.SIG_UNBLOCK:
                self._leave_to_script(wanted)
            return original(how, wanted)

        for name in ("__doc__", "__module__", "__name__", "__qualname__"):
            setattr(pthread_sigmask, name, getattr(original, name))
        signals.pthread_sigmask = pthread_sigmask  # type: ignore[attr-defined]

    def _leave_to_script(self, numbers: "Sequence[int]") -> None:
        try:
            if self._number not in numbers or os.getpid() != self._pid:
                return
            # Whoever asks for stacks has the page locked: after this, nothing is on its way to us.
            with self._page.locked():
                used = _used_signals()
                free = (n for n in _CHOICES if not used >> (n - 1) & 1 and n not in numbers)
                self._take(next(free, 0 if len(numbers) == 1 else self._number))
        except Exception as error:  # noqa: BLE001 - the script's own call goes on
            self._note(error)

    def _take(self, number: int) -> None:
        """0 for none. The one before stays registered until the script's handler replaces ours."""
        if number not in (0, self._number):
            faulthandler.unregister(number)  # if it was ours, and then the script's for a while
            faulthandler.register(number, file=self._fd, all_threads=False, chain=False)
        self._number = number
        self._page.write(layout.STACK_SIGNAL, number)


def detach() -> None:
    """In a forked child: its dumps are not the worker's, and go where they went without us."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for fd in _descriptors:
            os.dup2(nowhere, fd, inheritable=False)
        os.close(nowhere)
    except OSError:
        pass  # out of descriptors: the child has worse troubles


def _open(directory: str, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    fd = layout.move_up(os.open(os.path.join(directory, name), flags, 0o600))
    _descriptors.append(fd)
    return fd


def _used_signals() -> int:
    """Those that are caught, ignored or blocked, as a mask."""
    used = 0
    with open("/proc/thread-self/status") as status:
        for line in status:
            if line.startswith(("SigCgt:", "SigIgn:", "SigBlk:")):
                used |= int(line.split()[1], 16)
    return used
