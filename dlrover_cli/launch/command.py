"""The command that starts this launcher, whatever lies in the current directory or on the PATH."""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def launcher_command() -> list[str]:
    """To be followed by the arguments of `dlrover-run`."""
    return [sys.executable, str(_PACKAGE / "cli" / "entry" / "dlrover_run.py")]
