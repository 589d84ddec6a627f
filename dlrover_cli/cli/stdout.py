"""Printing what was asked for: a stdout that is closed, full or not read is no traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from dlrover_cli.errors import LaunchError
from dlrover_cli.exit_codes import ExitCode


@contextmanager
def printing() -> Iterator[None]:
    """Print in here. Raises LaunchError if stdout cannot be written to.

    A reader who has gone, as `head` does, has seen what was wanted: that is SystemExit(0).
    """
    if sys.stdout is None:  # the process was started without it
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            yield
        return
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as gone:
        # Typer turns the one into the other, with an exit code of 1.
        if isinstance(gone, SystemExit) and not isinstance(gone.__context__, BrokenPipeError):
            raise
        _drop_the_rest()
        raise SystemExit(int(ExitCode.SUCCESS)) from None
    except OSError as error:
        if error.filename is not None:  # another file's trouble
            raise
        _drop_the_rest()
        raise LaunchError(f"cannot write to stdout: {error.strerror}") from error


def _drop_the_rest() -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
