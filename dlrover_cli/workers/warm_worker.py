"""What a forked worker does before its script's first line: become as good as a new interpreter.

Everything that a script can observe is what a fresh ``python -u script.py`` would show it:
streams, environment, ``sys.argv``, ``sys.path``, ``__main__``, signals, seeds, the way it ends. The
one known difference is that torch has read its load-time variables already.
"""

import fcntl
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from dlrover_cli.workers import process_title
from dlrover_cli.workers.bootstrap import BEAT_FILE, WORKER_DIRECTORY, restore_python_path
from dlrover_cli.workers.bootstrap.in_worker.install import install
from dlrover_cli.workers.load_time import watch_load_time_variables

_OUR_FRAMES = 2  # of run and of _run_script or _run_module
_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """One worker: the command line that a fresh one would have had, and its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    @classmethod
    def from_message(cls, message: dict[str, Any], fds: list[int]) -> "WarmWorker":
        """In the worker's process: takes the request's descriptors, so it is made only once."""
        place_descriptors(fds, message["fds"])
        fds.clear()
        return cls(
            tuple(_unpacked(part) for part in message["argv"]),
            {_unpacked(name): _unpacked(value) for name, value in message["env"].items()},
        )

    def run(self) -> None:
        """Run the program; returns or raises as its interpreter's end demands."""
        self._become()
        # python -u [-m] program arguments
        *option, program, arguments = _split(self.argv)
        try:
            if option:
                _run_module(program, arguments)
            else:
                _run_script(program, arguments)
        except SystemExit:
            raise
        # The boundary to the user's program, which may raise anything.
        except BaseException as error:  # noqa: BLE001
            _tell_and_raise(error)

    def _become(self) -> None:
        process_title.write(self.argv)
        inherited_threads = os.environ.get("OMP_NUM_THREADS")
        os.environ.clear()
        os.environ.update(self.env)
        restore_python_path(os.environ)
        _open_standard_streams()
        _restore_signals()
        _renew_seeds()
        _renew_threads(inherited_threads, os.environ.get("OMP_NUM_THREADS"))
        sys.orig_argv[:] = self.argv
        directory = os.environ.get(WORKER_DIRECTORY)
        if directory is not None:
            install(directory, os.environ.get(BEAT_FILE))
        watch_load_time_variables(os.environ)


def _split(argv: Sequence[str]) -> tuple[Any, ...]:
    """``python -u [-m] program arguments``: the option if there is one, program, arguments."""
    if argv[2] == "-m":
        return "-m", argv[3], list(argv[4:])
    return argv[2], list(argv[3:])


def _run_script(script: str, arguments: list[str]) -> None:
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    path = os.path.abspath(script)
    main = _new_main()
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    vars(main)["__cached__"] = None
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        why = f"[Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: {why}\n")
        sys.exit(2)
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv[:] = ["-m", *arguments]
    sys.path.insert(0, os.getcwd())
    _new_main()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def place_descriptors(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each descriptor its number and close it under its old one."""
    above = max((*numbers, *fds)) + 1
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    return main


def _open_standard_streams() -> None:
    """The three streams as ``python -u`` makes them, on the descriptors that are there now."""
    for number, (name, mode) in enumerate(_STANDARD):
        before = getattr(sys, f"__{name}__")
        stream = _open_stream(number, f"<{name}>", mode, before)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open_stream(number: int, name: str, mode: str, before: Any) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None)
    errors = getattr(before, "errors", None)
    raw: Any = open(number, f"{mode}b", -1 if mode == "r" else 0, closefd=False)  # noqa: SIM115
    (raw.raw if mode == "r" else raw).name = name
    stream = io.TextIOWrapper(
        raw,
        encoding=encoding,
        errors=errors or ("backslashreplace" if number == 2 else None),
        newline="\n",
        write_through=True,
    )
    stream.mode = mode  # type: ignore[misc]
    return stream


def _restore_signals() -> None:
    """What a new interpreter has: Ctrl-C raises, and broken pipes are errors and no deaths."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _renew_seeds() -> None:
    """Forks share numpy's state; Python renews its own, and torch begins with a fixed one."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _renew_threads(before: str | None, now: str | None) -> None:
    """A number of threads that became known after torch was loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and now is not None and now != before and now.isdigit():
        torch.set_num_threads(int(now))


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
    sys.excepthook(type(error), error, trace)
    sys.excepthook = _say_nothing
    raise error


def _say_nothing(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    return None


def _unpacked(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
