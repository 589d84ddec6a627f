"""Where the console scripts begin, and what Ctrl-C does where there is nothing to undo yet.

Python answers it with an exception, wherever the program happens to be. While modules are being
loaded that is a traceback which nobody wants, or one that is ignored with a remark, after which the
program goes on as if nothing had happened. So the process just ends, but for the parts of it that
have something to undo, and say so.
"""

import os

# What `signal` is made of: here at once, while that takes time to load.
from _signal import (  # type: ignore[import-not-found]
    SIG_IGN,
    SIGINT,
    default_int_handler,
    getsignal,
    signal,
)


def dlrover_run() -> None:
    """The console script `dlrover-run`. Returns in a worker that was forked on the way."""
    _run_console_of("dlrover_cli.cli.run")


def dlrover_job() -> None:
    """The console script `dlrover-job`."""
    _run_console_of("dlrover_cli.cli.job")


class InterruptRaises:
    """In here Ctrl-C is a KeyboardInterrupt, as it is wherever no console script of ours runs."""

    def __enter__(self) -> None:
        self._ends = getsignal(SIGINT) is _end
        if self._ends:
            signal(SIGINT, default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._ends:
            signal(SIGINT, _end)


def _run_console_of(module: str) -> None:
    if getsignal(SIGINT) is default_int_handler:  # and not ignored, as in the background
        signal(SIGINT, _end)
    from importlib import import_module

    try:
        import_module(module).console()
    finally:
        if getsignal(SIGINT) is _end:  # not in a worker
            # All is done: what the interpreter does at its end must not change the outcome.
            signal(SIGINT, SIG_IGN)


def _end(signum: int, frame: object) -> None:
    os._exit(128 + signum)
