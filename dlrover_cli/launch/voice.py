"""What the launcher says on stderr: narration, which `--quiet` silences, and what must be said."""

import sys
from contextlib import suppress

from dlrover_cli.workers.console import console_of

_STDERR = 2
_is_quiet = False


def be_quiet(quiet: bool) -> None:
    """Keep narration to ourselves from now on, or not; events tell it all the same."""
    global _is_quiet
    _is_quiet = quiet


def say(line: str) -> None:
    """Narration: one line on stderr, apart from what the workers print."""
    if not _is_quiet:
        insist(line)


def insist(line: str) -> None:
    """What is said to everybody: the verdict, and where to look."""
    # Closed, full, or a pipe that nobody reads any more: no reason to end a training.
    with suppress(OSError, ValueError, AttributeError), console_of(_STDERR).interrupted():
        sys.stderr.write(f"dlrover-run: {line}\n")
        sys.stderr.flush()
