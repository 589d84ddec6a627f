"""Where runs are kept, and where temporary files go: writable, near, and with room."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlrover_cli.config.byte_sizes import show_bytes
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.jobs.file_systems import is_on_network
from dlrover_cli.telemetry.run_dir import state_directory

_LEAST = 64 << 20
_USUAL = 1 << 30
_SOCKET_LIMIT = 60
"""Of the folder: a socket's whole path has 108 bytes, and the names in it take some."""


def check_state(machine: Machine) -> Iterator[Finding]:
    """The state directory."""
    state = state_directory(machine.environ)
    nearest = next(path for path in (state, *state.parents) if path.exists())
    refusal = _refusal(nearest)
    if refusal is not None:
        yield problem(
            "state",
            f"{state} cannot be written: {refusal}",
            why="dlrover-run keeps its runs in a temporary directory then, where dlrover-job does "
            "not find them, and dlrover-job submit refuses",
            fix=f"make {nearest} writable for you, or set XDG_STATE_HOME to a folder that is",
        )
        return
    if is_on_network(nearest):
        yield warning(
            "state",
            f"{state} is on a network file system",
            why="when it is slow or away, so are the run's events and its list",
            fix="set XDG_STATE_HOME to a folder on a local disk",
        )
    yield _room(machine, "state", state, nearest, "logs and events of runs are lost")


def check_temporary(machine: Machine) -> Iterator[Finding]:
    """The folder for temporary files, as Python finds it from these variables."""
    names = (machine.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    folder = next((Path(name) for name in names if name), Path(tempfile.gettempdir()))
    refusal = _refusal(folder)
    if refusal is not None:
        yield problem(
            "temporary files",
            f"{folder} cannot be written: {refusal}",
            why="logs, sockets and the workers' error files are there",
            fix="set TMPDIR to a folder that is there and yours to write",
        )
        return
    if len(os.fsencode(folder)) > _SOCKET_LIMIT:
        yield warning(
            "temporary files",
            f"{folder} is a long name",
            why="paths of sockets have at most 108 bytes: Python's multiprocessing fails there",
            fix="set TMPDIR to a shorter one, such as /tmp",
        )
    yield _room(machine, "temporary files", folder, folder, "workers cannot write their files")


def _refusal(folder: Path) -> str | None:
    """Why nothing can be written there; None if it can. Root may write where no bit allows it."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dlrover-doctor-") as file:
            file.write(b"\0")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _room(machine: Machine, about: str, shown: Path, folder: Path, why: str) -> Finding:
    space = machine.space(folder)
    text = f"{shown}, {show_bytes(space.free)} of {show_bytes(space.total)} free"
    if space.free >= _USUAL:
        return ok(about, text)
    make = problem if space.free < _LEAST else warning
    return make(
        about,
        text,
        why=f"when it is full, {why}",
        fix="remove old runs with dlrover-job cleanup --older-than 7d, or other files there",
    )
