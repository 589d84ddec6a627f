"""Runs `python -m dlrover_cli` as a program of its own, from this source tree."""

import os
import subprocess
import sys
from pathlib import Path

import dlrover_cli

ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith("PET_")},
    "PYTHONPATH": str(Path(dlrover_cli.__file__).parents[1]),
}


def run_program(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The program's output and exit code."""
    return run_python("-m", "dlrover_cli", *argv, **environ)


def run_python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same with options of the interpreter in front."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **ENVIRON, **environ},
    )
