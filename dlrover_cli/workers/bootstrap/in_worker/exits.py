"""How this worker ends, written down by itself: an exception, or a call of exit and from where.

    exception.json   the uncaught exception of the main thread
    thread.json      the latest uncaught exception of another thread; matters if the process dies
    exit.json        the last sys.exit or os._exit with a code other than 0

Each file appears whole or not at all. What the user sees on stderr does not change. Nothing in
here may raise: the worker is about to die of something more important.
"""

import _thread
import os
import sys
from time import time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, NoReturn, TypeAlias

    Frames: TypeAlias = list[dict[str, Any]]

EXCEPTION_FILE = "exception.json"
THREAD_FILE = "thread.json"
EXIT_FILE = "exit.json"
_LONGEST_STATUS = 200
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACEBACK = 60_000
_MOST_FRAMES = 50


class ExitRecorder:
    """Watches the ways out of this process."""

    def __init__(self, directory: str, phase: "Callable[[], str]") -> None:
        self._directory = directory
        self._phase = phase
        self._pid = os.getpid()
        self._main_thread = _thread.get_ident()
        self._recorded = False
        self._exit_call: dict[str, Any] | None = None

    def install(self) -> None:
        """Take the hooks; those that were there are called as before."""
        previous = sys.excepthook

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: "TracebackType | None"
        ) -> None:
            # The interpreter keeps an uncaught exception before it calls the hook. Without that,
            # somebody only wants to see one that he caught.
            if getattr(sys, "last_value", None) is value:
                self._safely(lambda: self._record(kind, value, traceback))
            previous(kind, value, traceback)

        sys.excepthook = excepthook
        self._watch_sys_exit()
        self._watch_hard_exit()

    def watch_threads(self, threading: "ModuleType") -> None:
        """Also record what other threads die of (threading)."""
        previous = threading.excepthook

        def excepthook(args: "Any") -> None:
            if args.exc_type is not SystemExit:
                self._safely(lambda: self._record_thread(args))
            previous(args)

        threading.excepthook = excepthook  # type: ignore[attr-defined]

    def finish(self) -> None:
        """At the end: what a script that replaced ``sys.excepthook`` kept from us, and the exit."""
        self._safely(self._record_last_exception)
        self._safely(self._record_exit)

    def _watch_sys_exit(self) -> None:
        original = sys.exit

        def exit(status: "Any" = None, /) -> "NoReturn":  # noqa: A001 - it is the builtin's name
            if _thread.get_ident() == self._main_thread:
                self._safely(lambda: self._note_exit("sys.exit", status, sys._getframe(3)))
            original(status)

        _look_like(exit, original, "sys")
        sys.exit = exit

    def _watch_hard_exit(self) -> None:
        original = os._exit

        def _exit(status: int) -> "NoReturn":
            self._safely(lambda: self._note_exit("os._exit", status, sys._getframe(3)))
            self.finish()
            original(status)

        _look_like(_exit, original, os.name)
        os._exit = _exit

    def _record(
        self, kind: type[BaseException], value: BaseException, tb: "TracebackType | None"
    ) -> None:
        now = time_ns()
        self._write(EXCEPTION_FILE, {**_facts_of(kind, value, tb), **self._facts_of_now(now)})
        self._recorded = True  # not before: a signal's handler may raise meanwhile

    def _record_thread(self, args: "Any") -> None:
        now = time_ns()
        facts = _facts_of(args.exc_type, args.exc_value, args.exc_traceback)
        facts["thread"] = "" if args.thread is None else args.thread.name
        self._write(THREAD_FILE, {**facts, **self._facts_of_now(now)})

    def _record_last_exception(self) -> None:
        value = getattr(sys, "last_value", None)
        if not self._recorded and isinstance(value, BaseException):
            self._record(type(value), value, value.__traceback__)

    def _note_exit(self, call: str, status: object, frame: "FrameType") -> None:
        now = time_ns()
        self._exit_call = {
            "call": f"{call}({_shown(status)})",
            "code": _exit_code(status),
            "frames": _frames_of_stack(frame),
            **self._facts_of_now(now),
        }

    def _record_exit(self) -> None:
        if self._exit_call is not None and self._exit_call["code"] != 0:
            self._write(EXIT_FILE, self._exit_call)

    def _facts_of_now(self, now: int) -> "dict[str, Any]":
        return {"time_ns": now, "pid": self._pid, "phase": self._phase()}

    def _write(self, name: str, facts: "dict[str, Any]") -> None:
        path = os.path.join(self._directory, name)
        temporary = f"{path}.{self._pid}"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(_json(facts))
        os.replace(temporary, path)

    def _safely(self, record: "Callable[[], None]") -> None:
        if os.getpid() != self._pid:
            return  # a forked child: its end is its own affair
        try:
            record()
        except Exception as error:  # noqa: BLE001 - see above: the worker is dying of something else
            try:
                with open(os.path.join(self._directory, "bootstrap.log"), "a") as log:
                    log.write(f"cannot record the end: {type(error).__name__}: {error}\n")
            except Exception:  # noqa: BLE001
                pass


def _facts_of(
    kind: type[BaseException], value: BaseException, tb: "TracebackType | None"
) -> "dict[str, Any]":
    if kind is KeyboardInterrupt:
        # It ends the process by SIGINT, unless a string is evaluated before: imports do that.
        frames = [_frame(frame, line) for frame, line in _walk(tb)]
        lines = [f'  File "{f["file"]}", line {f["line"]}, in {f["function"]}' for f in frames]
        text = "\n".join(["Traceback (most recent call last):", *lines, "KeyboardInterrupt", ""])
    else:
        # Costs nothing where the script has imported it, and the interpreter is ending anyway.
        import traceback

        text = "".join(traceback.format_exception(kind, value, tb))
    return {
        "type": _qualified_name(kind),
        "message": _shortened(_text_of(value), _LONGEST_MESSAGE),
        "traceback": _shortened(text, _LONGEST_TRACEBACK),
        "frames": _frames_of_traceback(tb),
    }


def _qualified_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text_of(value: BaseException) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the exception's own __str__
        return "<the message cannot be shown>"


def _shortened(text: str, longest: int) -> str:
    """Both ends of a text that is too long; the end of a traceback says most."""
    # Lone surrogates (file names) cannot be written as UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= longest:
        return text
    head = longest // 4
    tail = longest - head
    return f"{text[:head]}\n… {len(text) - longest} characters left out …\n{text[-tail:]}"


def _frames_of_traceback(tb: "TracebackType | None") -> "Frames":
    with_locals = os.environ.get("DLROVER_FRAME_LOCALS") == "1"
    found: Frames = []
    for frame, line in _walk(tb):
        found.append(_frame(frame, line))
        if with_locals:
            from . import variables

            found[-1]["locals"] = variables.describe(frame.f_locals)
    return _of_the_user(found)[-_MOST_FRAMES:]


def _walk(tb: "TracebackType | None") -> "Iterator[tuple[FrameType, int]]":
    while tb is not None:
        yield tb.tb_frame, tb.tb_lineno
        tb = tb.tb_next


def _frames_of_stack(innermost: "FrameType | None") -> "Frames":
    found: Frames = []
    while innermost is not None:
        found.append(_frame(innermost, innermost.f_lineno))
        innermost = innermost.f_back
    found.reverse()
    return _of_the_user(found)[-_MOST_FRAMES:]


def _frame(frame: "FrameType", line: int) -> "dict[str, Any]":
    return {"file": frame.f_code.co_filename, "line": line, "function": frame.f_code.co_name}


def _of_the_user(frames: "Frames") -> "Frames":
    """The frames of the user's own code; the innermost one if none is."""
    library = os.path.dirname(os.__file__) + os.sep
    own = [
        frame
        for frame in frames
        if not frame["file"].startswith((library, "<frozen"))
        and "site-packages" not in frame["file"]
        and "dist-packages" not in frame["file"]
    ]
    return own or frames[-1:]


def _exit_code(status: object) -> int:
    """What the operating system will see."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def _shown(status: object) -> str:
    if status is None:
        return ""
    if isinstance(status, int | str):
        shown = repr(status)
        return shown if len(shown) <= _LONGEST_STATUS else f"{shown[:_LONGEST_STATUS]}…"
    return f"<{type(status).__name__}>"


def _json(value: object) -> str:
    """The value as JSON. The json package would be some milliseconds of importing."""
    from _json import encode_basestring_ascii

    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"{_json(name)}: {_json(each)}" for name, each in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    return "null" if value is None else repr(value)  # the rest are numbers


def _look_like(replacement: "Any", original: "Any", module: str) -> None:
    replacement.__name__ = replacement.__qualname__ = original.__name__
    replacement.__doc__ = original.__doc__
    replacement.__module__ = getattr(original, "__module__", module)
