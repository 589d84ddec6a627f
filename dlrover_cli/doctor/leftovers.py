"""What runs that are over have left: processes, pages of shared memory, and too many files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.doctor.finding import Finding, ok, warning
from dlrover_cli.doctor.listeners import command_of
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.sizes import complaint_about_size
from dlrover_cli.telemetry.run_dir import state_directory
from dlrover_cli.workers.beats import own_beat_directories

_MARK = b"DLROVER_RUN_ID="
_SHOWN = 5


def check_leftovers(machine: Machine) -> Iterator[Finding]:
    """Of this user's runs on this machine."""
    found = [*_old_processes(machine), *_old_pages(machine), *_too_much(machine)]
    yield from found or [ok("leftovers", "none: no process, shared memory or pile of old runs")]


def _old_processes(machine: Machine) -> Iterator[Finding]:
    over = _runs_that_are_over(machine)
    by_run: dict[str, list[str]] = {}
    for folder in sorted((machine.root / "proc").glob("[0-9]*")):
        with suppress(OSError):
            run_id = _run_id_of(folder)
            if run_id in over:
                by_run.setdefault(run_id, []).append(f"{folder.name} {command_of(folder)}")
    for run_id, processes in by_run.items():
        more = ", …" if len(processes) > _SHOWN else ""
        yield warning(
            "leftovers",
            f"run {run_id} is over, and some of its processes ({len(processes)}) are still there: "
            f"{', '.join(processes[:_SHOWN])}{more}",
            why="they hold ports, memory and devices that the next run needs",
            fix=f"dlrover-job stop {run_id}",
        )


def _runs_that_are_over(machine: Machine) -> frozenset[str]:
    """Nothing is made where nothing has run yet."""
    state = state_directory(machine.environ)
    if not (state / "runs").is_dir():
        return frozenset()
    over = frozenset(each for each in RunState if each.is_over)
    with Ledger.open(state, on_problem=lambda line: None) as ledger:
        heal(ledger, state, on_problem=lambda line: None)
        return frozenset(row.run_id for row in ledger.rows(states=over))


def _run_id_of(process: Path) -> str:
    for entry in (process / "environ").read_bytes().split(b"\0"):
        if entry.startswith(_MARK):
            return os.fsdecode(entry[len(_MARK) :])
    return ""


def _old_pages(machine: Machine) -> Iterator[Finding]:
    """Directories that their agent had locked; the next agent removes them as well."""
    folders = [machine.root / "dev/shm", machine.root / "tmp"]
    found = [
        path for folder in folders for path in own_beat_directories(folder) if _is_abandoned(path)
    ]
    if found:
        yield warning(
            "leftovers",
            f"shared memory of launchers that were killed: {', '.join(map(str, found[:_SHOWN]))}",
            why="it takes a little memory, and shows that a launcher ended without cleaning up",
            fix="none needed, the next run removes it; or: rm -r " + " ".join(map(str, found)),
        )


def _is_abandoned(directory: Path) -> bool:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _too_much(machine: Machine) -> Iterator[Finding]:
    state = state_directory(machine.environ)
    if not (state / "runs").is_dir():
        return
    with Ledger.open(state, on_problem=lambda line: None) as ledger:
        complaint = complaint_about_size(ledger, machine.environ)
    if complaint is not None:
        seen, _, fix = complaint.partition("; ")
        yield warning("leftovers", seen, why="the disk of the state directory fills up", fix=fix)
