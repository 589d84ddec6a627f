"""Ctrl-C at any moment of a console script: 130, and not a word."""

import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.program import ENVIRON

ROOT = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# What each of them loads first that no interpreter has loaded by itself.
LOADED = {"dlrover-run": "socket", "dlrover-job": "typer", "python -m": "socket"}
INTERRUPTED_MODULE = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
os._exit(7)
"""
# Of these alone something may be seen: they end before Ctrl-C means anything but Python's own.
FIRST_FILES = ("__init__.py", "__main__.py", "entry.py")


def script(name: str, directory: Path) -> list[str]:
    """A console script as an installer writes it, for this source tree."""
    if name == "python -m":
        return [sys.executable, "-m", "dlrover_cli"]
    module, function = SCRIPTS[name].split(":")
    path = directory / name
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\n"
        f"if __name__ == '__main__':\n    sys.exit({function}())\n"
    )
    path.chmod(0o755)
    return [str(path)]


@pytest.mark.parametrize("name", LOADED)
def test_while_modules_are_being_loaded(name: str, tmp_path: Path) -> None:
    finished = run_with_interrupted(LOADED[name], script(name, tmp_path), tmp_path)
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "")


def test_a_script_in_the_background_goes_on(tmp_path: Path) -> None:
    """A shell without job control has it ignore Ctrl-C."""
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *script("dlrover-run", tmp_path)]
    assert run_with_interrupted("socket", command, tmp_path).returncode == 7


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name, arguments, moments",
    [
        ("dlrover-run", ["--help"], 20),
        ("dlrover-run", ["--dry_run", "train.py"], 12),  # torch takes a second or two
        ("dlrover-job", ["list", "--json"], 20),
        ("python -m", ["--help"], 20),
    ],
)
def test_at_every_moment(name: str, arguments: list[str], moments: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = [*script(name, tmp_path), *arguments]
    started = time.monotonic()
    assert interrupted_after(None, command, tmp_path).returncode == 0
    seconds = time.monotonic() - started
    ends: Counter[int] = Counter()
    for moment in range(moments):
        delay = seconds * moment / moments
        finished = interrupted_after(delay, command, tmp_path)
        ends[finished.returncode] += 1
        if finished.returncode in (0, 130):
            assert finished.stderr == "", f"after {delay:.3f} s"
            continue
        # Python's own end, before a line of ours has had its say.
        ours = re.findall(r"/dlrover_cli/([^\"]+)\"", finished.stderr)
        assert set(ours) <= set(FIRST_FILES), finished.stderr
        assert finished.stdout == "", finished
    assert ends[130] > 5, ends


def run_with_interrupted(
    module: str, command: list[str], directory: Path
) -> subprocess.CompletedProcess[str]:
    """Run it with a module that gets the signal while it is being loaded."""
    (directory / f"{module}.py").write_text(INTERRUPTED_MODULE)
    path = f"{directory}:{ENVIRON['PYTHONPATH']}"
    return subprocess.run(
        [*command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**ENVIRON, "PYTHONPATH": path},
    )


def interrupted_after(
    delay: float | None, command: list[str], directory: Path
) -> subprocess.CompletedProcess[str]:
    """None for a run that comes to its own end."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env={**ENVIRON, "XDG_STATE_HOME": str(directory)},
    )
    if delay is not None:
        time.sleep(delay)  # any moment will do, so none is waited for
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
