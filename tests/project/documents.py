"""The project's own files, as its tests read them."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def setup_commands() -> list[str]:
    """README's commands that do everything on a fresh machine: each makes its environment."""
    return re.findall(r"^python3 -m venv .*$", text("README.md"), re.MULTILINE)


def steps(command: str) -> list[str]:
    """The parts of a one-line command, as they are typed inside the environment."""
    return [step.removeprefix(".venv/bin/") for step in command.split(" && ")]


def tracked_files() -> list[Path]:
    """Everything that is, or would be, under version control."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]
