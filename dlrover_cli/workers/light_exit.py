"""The end of a warm worker: what it shares with its siblings is not taken apart.

A process that ends clears every Python module and runs the destructors of every library. For a
heap that was shared until then, the kernel would have to copy nearly all of it, once per worker and
for nothing. So what was loaded before the fork is passed over. All else ends as it always does:
threads, exit functions, the script's own modules, objects and libraries, buffers, the exit code.
"""

import atexit
import ctypes
import os
import sys
import weakref
from collections.abc import Mapping

# Libraries that are put into a process from outside may write down their results at its end.
_INJECTED_BY = ("LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_VISIBLE = ("sys", "builtins", "__main__", "atexit")

_shared: frozenset[str] = frozenset()
_worker = 0


def note_shared() -> None:
    """In the zygote: what is loaded now does not end with any of its workers."""
    global _shared
    _shared = frozenset(sys.modules).difference(_VISIBLE)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]


def pass_over_shared(environ: Mapping[str, str]) -> None:
    """In a worker, before its script: end without what was noted. Not for what it forks."""
    global _worker
    _worker = os.getpid()
    if not any(environ.get(name) for name in _INJECTED_BY):
        _skip_destructors()


def _hide_shared() -> None:
    """The interpreter clears what it finds among its modules."""
    if os.getpid() != _worker:
        return
    for name in _shared & sys.modules.keys():
        module = sys.modules.pop(name)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))


def _skip_destructors() -> None:
    """Handlers run in reverse order: those of later libraries, the buffers, then the end.

    Children of a worker inherit this, and end the better for it too.
    """
    libc = ctypes.CDLL(None)
    # The two functions are the handlers themselves: _exit(status) and fflush(NULL).
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)


# The exit function that is registered first runs last. So this module is imported before any other
# that registers one: exit functions of theirs may still want to import something.
atexit.register(_hide_shared)
