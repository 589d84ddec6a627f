"""A person looks into this worker: at a breakpoint, or at what it has just died of.

While the prompt is open, a cell of the beat page says so: the agent holds back what the other
workers print, counts the time as progress, and hands Ctrl-C on. Loaded only where it was asked for.
"""

import atexit
import os
import sys
from time import monotonic, monotonic_ns, sleep

from . import page as layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType
    from typing import Any

    from .imports import ImportWatch

# What DLROVER_DEBUG and DLROVER_POST_MORTEM say.
AT_BREAKPOINTS = "pdb"
FOR_AN_IDE = "debugpy"
NOT_HERE = "pass"
POST_MORTEM = "pdb"
POST_MORTEM_ASKED = "ask"
_QUESTION = "[p] look into it with pdb, before anything is stopped   [Enter] go on\n"
_DRAIN_SECONDS = 0.5
_FIONREAD = 0x541B
_TIOCOUTQ = 0x5411


class Debugger:
    """What a person may do in this worker."""

    def __init__(self, page: layout.Page, rank: str, note: "Callable[[str], None]") -> None:
        self._page = page
        self._rank = rank
        self._note = note
        self._depth = 0

    def serve_breakpoints(self, watch: "ImportWatch") -> None:
        """pdb's prompts are shown in the page, whoever opens them."""
        watch.when_imported("pdb", self._watch_prompts)

    def listen(self) -> None:
        """Wait for an IDE (debugpy) before the first line of the script."""
        with _Prompt(self._page, layout.WAITING):
            import debugpy  # type: ignore[import-not-found,unused-ignore]

            host, port = debugpy.listen(("127.0.0.1", 0))
            line = f"dlrover-run: rank {self._rank} waits for a debugger at {host}:{port}\n"
            os.write(2, line.encode())
            debugpy.wait_for_client()

    def watch_exceptions(self, terminal: str, claim: str, *, ask: bool) -> None:
        """Open pdb where an uncaught exception was raised, if no other worker was faster."""
        previous = sys.excepthook
        seen: list[BaseException] = []

        def look(value: BaseException, traceback: "TracebackType | None") -> None:
            if value not in seen and traceback is not None and _is_of_interest(value):
                seen.append(value)
                self._look(value, traceback, terminal, claim, ask)

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: "TracebackType | None"
        ) -> None:
            previous(kind, value, traceback)
            if getattr(sys, "last_value", None) is value:
                look(value, traceback)

        def look_at_the_end() -> None:
            """For a script that has replaced ``sys.excepthook``."""
            value = getattr(sys, "last_value", None)
            if isinstance(value, BaseException):
                look(value, value.__traceback__)

        sys.excepthook = excepthook
        atexit.register(look_at_the_end)

    def _watch_prompts(self, pdb: "ModuleType") -> None:
        original = pdb.Pdb.interaction

        def interaction(debugger: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            with _Prompt(self._page, layout.AT_PROMPT), _Kept():
                return original(debugger, *args, **kwargs)

        pdb.Pdb.interaction = interaction

    def _look(
        self,
        value: BaseException,
        traceback: "TracebackType",
        terminal: str,
        claim: str,
        ask: bool,
    ) -> None:
        try:
            with _Claim(claim) as is_first:
                if is_first:
                    self._open(value, traceback, terminal, ask)
        # The worker is dying of something else.
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
            self._note(f"post-mortem: {type(error).__name__}: {error}")

    def _open(
        self, value: BaseException, traceback: "TracebackType", terminal: str, ask: bool
    ) -> None:
        import pdb

        _let_the_traceback_be_shown()
        kind = layout.WAITING if ask else layout.AT_PROMPT
        with _Prompt(self._page, kind) as prompt, _Terminal(terminal), _Kept():
            sys.stdout.write(f"\nrank {self._rank} failed: {type(value).__name__}: {value}\n")
            if ask:
                sys.stdout.write(_QUESTION)
                if input("> ").strip(" \t\x1a").lower() != "p":  # Ctrl-Z is a character here
                    return
                prompt.change(layout.AT_PROMPT)
            sys.stdout.write("post-mortem: the other ranks wait; q goes on with the failure\n")
            pdb.post_mortem(traceback)


class _Prompt:
    """Shown in the page while inside; one inside another one changes nothing."""

    def __init__(self, page: layout.Page, kind: int) -> None:
        self._page = page
        self._kind = kind

    def __enter__(self) -> "_Prompt":
        self._before = self._page.read(layout.PROMPT)
        self._page.write(layout.PROMPT, self._kind)
        return self

    def change(self, kind: int) -> None:
        self._page.write(layout.PROMPT, kind)

    def __exit__(self, *_: object) -> None:
        self._page.write(layout.PROMPT_NS, monotonic_ns())
        self._page.write(layout.PROMPT, self._before)


class _Kept:
    """While inside, Ctrl-Z does not take the terminal away.

    It would stop the launcher alone, and then both the shell and this prompt read what is typed.
    """

    def __enter__(self) -> None:
        import termios

        self._before = None
        try:
            modes = termios.tcgetattr(0)
            before = modes[6][termios.VSUSP]
            modes[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(0, termios.TCSANOW, modes)
            self._before = before
        except termios.error:
            pass  # no terminal

    def __exit__(self, *_: object) -> None:
        import termios

        if self._before is None:
            return
        try:
            modes = termios.tcgetattr(0)
            modes[6][termios.VSUSP] = self._before
            termios.tcsetattr(0, termios.TCSANOW, modes)
        except termios.error:
            pass  # it is gone


class _Claim:
    """True in the first process that comes; the others wait until it has left."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> bool:
        import fcntl

        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        is_first = os.fstat(self._fd).st_size == 0
        if is_first:
            os.write(self._fd, b"%d\n" % os.getpid())
        return is_first

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class _Terminal:
    """The launcher's terminal as stdin, stdout and stderr while inside, whatever they were."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        _flush()
        terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY)
        self._saved = [os.dup(number) for number in range(3)]
        for number in range(3):
            os.dup2(terminal, number)
        os.close(terminal)
        self._streams = sys.stdin, sys.stdout, sys.stderr
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", closefd=False, buffering=1)
        sys.stderr = open(2, "w", closefd=False, buffering=1)

    def __exit__(self, *_: object) -> None:
        _flush()
        sys.stdin, sys.stdout, sys.stderr = self._streams
        for number, saved in enumerate(self._saved):
            os.dup2(saved, number)
            os.close(saved)


def pass_by_breakpoints(watch: "ImportWatch") -> None:
    """In the workers that nobody looks into: their breakpoints are those of the one."""
    sys.breakpointhook = _pass_by
    watch.when_imported("pdb", _disarm)


def _disarm(pdb: "ModuleType") -> None:
    pdb.set_trace = _pass_by  # type: ignore[attr-defined]


def _pass_by(*args: object, **kwargs: object) -> None:
    return None


def _is_of_interest(value: BaseException) -> bool:
    return not isinstance(value, KeyboardInterrupt) and type(value).__name__ != "BdbQuit"


def _let_the_traceback_be_shown() -> None:
    """It goes through the launcher, which shows nothing of it once the prompt is open."""
    import fcntl
    import struct

    _flush()
    request = _TIOCOUTQ if os.isatty(2) else _FIONREAD
    end = monotonic() + _DRAIN_SECONDS
    try:
        while monotonic() < end and any(fcntl.ioctl(2, request, struct.pack("i", 0))):
            sleep(0.005)
    except OSError:
        pass  # a file: nobody shows it
    sleep(0.05)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed, or none at all
