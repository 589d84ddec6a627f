"""Which Python and which launcher a person gets who types their names."""

import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from dlrover_cli import __version__
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine

_SCRIPT = "dlrover-run"


def check_python(machine: Machine) -> Iterator[Finding]:
    """The one that runs this, and so the workers."""
    version = ".".join(map(str, sys.version_info[:3]))
    where = "a virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield ok("Python", f"{version}, {sys.executable}, in {where}")


def check_launcher(machine: Machine) -> Iterator[Finding]:
    """Whether `dlrover-run` is ours: the package dlrover brings a script of the same name."""
    scripts = list(_scripts(machine))
    ours = [path for path in scripts if _is_ours(path)]
    if not scripts:
        yield warning(
            "launcher",
            f"dlrover-cli {__version__}, and no {_SCRIPT} on the PATH",
            why="who types it gets 'command not found'",
            fix=f"activate its environment, or type: {sys.executable} -m dlrover_cli",
        )
    elif scripts[0] not in ours:
        yield problem(
            "launcher",
            f"the first {_SCRIPT} on the PATH is another program: {scripts[0]}",
            why="what you type there is not read by this package",
            fix=f"put {Path(sys.executable).parent} first on the PATH, or type: "
            f"{sys.executable} -m dlrover_cli",
        )
    elif not _same_python(scripts[0]):
        yield warning(
            "launcher",
            f"the first {_SCRIPT} on the PATH is that of another Python: {scripts[0]}",
            why=f"it has other packages than {sys.executable}, which was asked now",
            fix=f"run the doctor of that environment: {scripts[0].parent / 'dlrover-job'} doctor",
        )
    else:
        yield ok("launcher", f"dlrover-cli {__version__}, {scripts[0]}")
    if (other := installed_version("dlrover")) is not None:
        yield warning(
            "launcher",
            f"the package dlrover {other} is installed beside this one",
            why=f"both bring a script {_SCRIPT}, and the one installed last has it",
            fix=f"type {sys.executable} -m dlrover_cli, which is always this one",
        )


def installed_version(package: str) -> str | None:
    """None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _scripts(machine: Machine) -> Iterator[Path]:
    for folder in machine.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".", _SCRIPT)
        if os.access(path, os.X_OK) and path.is_file():
            yield path


def _is_ours(path: Path) -> bool:
    try:
        return b"dlrover_cli" in path.read_bytes()[:4096]
    except OSError:
        return False


def _same_python(path: Path) -> bool:
    """Whether the script is run by this interpreter; a name such as `env python` is given up."""
    try:
        first = path.read_bytes()[:512].splitlines()[0].decode(errors="replace")
    except (OSError, IndexError):
        return True
    if not first.startswith("#!/") or "/env" in first:
        return True
    return Path(first[2:].split()[0]).parent == Path(sys.executable).parent
