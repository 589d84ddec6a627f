"""Run a program in this process as the interpreter would have run it from its own command line.

A script is run by the very function that ``python script.py`` ends in, called by the interpreter
when nothing of ours is on the stack any more. So stacks, warnings, syntax errors, exit codes and
the order of the end need no imitation. For a module, the interpreter itself calls Python code, and
our frames stay below that.
"""

import contextlib
import ctypes
import os
import runpy
import sys
import traceback
import types
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

_OUR_FRAMES = 1  # of run_module
_KEPT_BY_INTERPRETER = ("last_exc", "last_type", "last_value", "last_traceback")

_libc = ctypes.CDLL(None)
_libc.fopen.restype = ctypes.c_void_p


def run_script(script: str, arguments: list[str]) -> NoReturn:
    """Leave the stack; the interpreter finds the script where it looks for its ``excepthook``.

    Whoever stands between us and the interpreter must let the exception pass.
    """
    sys.argv[:] = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    path = os.path.join(os.getcwd(), script)  # as it is, with its dots
    file = _libc.fopen(os.fsencode(path), b"rb")
    if not file:
        _say_that_it_cannot_be_opened(path)
        sys.exit(2)
    _new_main()
    raise _StackIsEmpty(ctypes.c_void_p(file), os.fsencode(path))


class _StackIsEmpty(BaseException):
    """On its way to the interpreter, which calls ``sys.excepthook`` with it: our script."""

    def __init__(self, file: ctypes.c_void_p, path: bytes) -> None:
        super().__init__()
        # int PyRun_SimpleFileEx(FILE *file, const char *name, int close)
        run = ctypes.pythonapi.PyRun_SimpleFileEx
        # A hook has three arguments and so has the function, but they are others.
        given = (_Instead(file, self._put_back), _Instead(path), _Instead(1))
        run.argtypes = given  # type: ignore[assignment]  # all that counts is from_param
        run.restype = _end_after
        self._previous = sys.excepthook
        sys.excepthook = run

    def _put_back(self) -> None:
        sys.excepthook = self._previous
        for name in _KEPT_BY_INTERPRETER:
            if hasattr(sys, name):
                delattr(sys, name)
        traceback.clear_frames(self.__traceback__)
        self.__traceback__ = None


class _Instead:
    """In the place of an argument's type: passes another value, whatever the argument is."""

    def __init__(self, value: object, first: Callable[[], None] = lambda: None) -> None:
        self._value = value
        self._first = first

    def from_param(self, _: object) -> object:
        self._first()
        return self._value


def _end_after(status: int) -> None:
    """The script's exception, if there was one, has been shown, and -1 makes our exit code 1."""
    if status == 0:
        raise SystemExit(0)


def _say_that_it_cannot_be_opened(path: str) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        why = f"[Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: {why}\n")


def run_module(name: str, arguments: list[str]) -> None:
    """As ``python -m name`` does; what the module raises comes out, and has been shown."""
    sys.argv[:] = ["-m", *arguments]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    _new_main()
    try:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    except SystemExit:
        raise
    # The boundary to the user's program, which may raise anything.
    except BaseException as error:  # noqa: BLE001
        _tell_and_raise(error)


def _new_main() -> None:
    main = types.ModuleType("__main__")
    vars(main).update(__annotations__={}, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = main


def _tell_and_raise(error: BaseException) -> NoReturn:
    """Show an uncaught exception as the interpreter would, and let it end the process.

    Ours are the outermost frames of its traceback. The interpreter would show them, so it is told
    to show nothing more; it still waits for threads, runs exit functions and chooses the status.
    """
    trace = error.__traceback__
    for _ in range(_OUR_FRAMES):
        trace = trace.tb_next if trace is not None else None
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    error.__traceback__ = trace
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit:
        raise
    # The user's hook, which may fail in any way.
    except BaseException as another:  # noqa: BLE001
        _tell_both(another, error)
    sys.excepthook = _say_nothing
    raise error


def _tell_both(of_hook: BaseException, error: BaseException) -> None:
    trace = of_hook.__traceback__  # its outermost frame is ours
    of_hook.__traceback__ = None if trace is None else trace.tb_next
    of_hook.__context__ = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(of_hook), of_hook, of_hook.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def _say_nothing(kind: type[BaseException], value: Any, trace: TracebackType | None) -> None:
    return None
