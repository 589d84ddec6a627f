"""What makes a forked process as good as a new interpreter: ``python -u``, with torch loaded.

Each function puts one thing right that a fork copies and a new process would have afresh.
"""

import contextlib
import ctypes
import io
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any

_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_UNBUFFERED = 2  # _IONBF

LAUNCHERS_OWN = (
    "annotated_doc",
    "importlib_metadata",
    "lazy_importer",
    "rich",
    "shellingham",
    "typer",
    "zipp",
)
"""Packages that a launcher has loaded for itself; a script gets its own, if it wants them."""


def flush_streams() -> None:
    """Before a fork: what waits in a buffer would be written by every child."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    ctypes.CDLL(None).fflush(None)


def open_standard_streams() -> None:
    """The three streams as ``python -u`` makes them, on the descriptors that are there now."""
    for number, (name, mode) in enumerate(_STANDARD):
        before = getattr(sys, f"__{name}__")
        stream = _open_stream(number, f"<{name}>", mode, before)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    libc = ctypes.CDLL(None)
    for name, _ in _STANDARD:  # what C code prints is not held back either
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, _UNBUFFERED, 0)


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


def restore_signals() -> None:
    """What a new interpreter has: Ctrl-C raises, and broken pipes are errors and no deaths."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def renew_seeds() -> None:
    """Forks share the states of numpy and torch; Python renews its own."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def renew_torch_threads(before: str | None, now: str | None) -> None:
    """A number of threads that became known after torch was loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and now is not None and now != before and now.isdigit():
        torch.set_num_threads(int(now))


def renew_main_thread() -> None:
    """Python 3.11 leaves the parent's id there."""
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]


def forget_modules(packages: Iterable[str]) -> None:
    """Make these packages, and the finders of modules that they added, as if never imported."""
    forgotten = frozenset(packages)
    for name in [name for name in sys.modules if name.partition(".")[0] in forgotten]:
        del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if _package_of(each) not in forgotten]


def _package_of(finder: object) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return kind.__module__.partition(".")[0]
