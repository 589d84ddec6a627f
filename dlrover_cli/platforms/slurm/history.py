"""What a run had come to when Slurm started its job again: the counters go on, and so does its id.

A job that this platform submits is given its run. One that the user's own batch script runs finds
it again in a note, kept per Slurm job and command.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.decide import Action, Counters
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.slurm.allocation import Allocation
from dlrover_cli.telemetry.events import read_events
from dlrover_cli.telemetry.run_dir import state_directory, write_json_atomically

MANAGER = "manager"


@dataclass(frozen=True, slots=True)
class History:
    """What was there before."""

    counters: Counters | None
    """Where the counting goes on; None if no worker was ever started."""
    relaunches: int = 0
    """How many nodes the managers before have replaced."""
    was_aborted: bool = False
    """Whether policy has ended the run for good."""


def read_history(given: GivenRun) -> History:
    """From the journals of all agents and managers of the run. Never raises."""
    run_directory = Path(given.run_directory)
    last = Counters(attempt=-1)
    replacements: set[int] = set()
    relaunches = 0
    for event in _events(run_directory):
        attempt, data = event.get("attempt"), event.get("data", {})
        match event.get("kind"):
            case "workers_started" if isinstance(attempt, int) and attempt > last.attempt:
                last = Counters(attempt, int(data["restart_count"]), int(data["generation"]))
            case "decision" if data.get("action") == Action.REPLACE_NODE.value:
                replacements.add(int(attempt or 0))
            case "decision" if data.get("action") == Action.RESTART_JOB.value:
                replacements.clear()
            case "replacing":
                relaunches = max(relaunches, int(data.get("number", 0)))
            case _:
                pass
    counters = None
    if last.attempt >= 0:
        counters = replace(last, attempt=last.attempt + 1, node_relaunches=len(replacements))
    return History(counters, relaunches, _was_aborted(given))


def find_run(
    environ: Mapping[str, str], allocation: Allocation, argv: Sequence[str]
) -> GivenRun | None:
    """The run of the same command in an earlier start of the same Slurm job."""
    if allocation.restarts == 0:
        return None
    with suppress(OSError, ValueError, KeyError):
        note = json.loads(_note(environ, allocation, argv).read_text())
        if Path(note["run_directory"]).is_dir():
            return GivenRun(note["run_id"], note["run_directory"], keeps_life=True)
    return None


def remember_run(
    environ: Mapping[str, str],
    allocation: Allocation,
    argv: Sequence[str],
    run_id: str,
    run_directory: Path,
) -> None:
    """Leave a note for `find_run`; if it cannot be written, a restart is a run of its own."""
    path = _note(environ, allocation, argv)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json_atomically(path, {"run_id": run_id, "run_directory": str(run_directory)})


def _note(environ: Mapping[str, str], allocation: Allocation, argv: Sequence[str]) -> Path:
    cluster = environ.get("SLURM_CLUSTER_NAME", "")
    command = hashlib.sha256("\0".join([os.getcwd(), *argv]).encode(errors="replace")).hexdigest()
    name = f"{cluster}-{allocation.job_id}-{command[:16]}.json"
    return state_directory(environ) / "slurm" / name


def result_of(given: GivenRun) -> Path:
    """Where the manager of the run writes its result."""
    return Path(given.run_directory, given.result_name)


def _was_aborted(given: GivenRun) -> bool:
    with suppress(OSError, ValueError):
        result = json.loads(result_of(given).read_text())
        return bool(result.get("exit_code") == ExitCode.ABORTED)
    return False


def _events(run_directory: Path) -> Iterator[dict[str, Any]]:
    """Of all journals, by time."""
    journals = run_directory.glob("nodes/*/events.jsonl")
    found = [event for journal in journals for event in read_events(journal)]
    yield from sorted(found, key=lambda event: float(event.get("time", 0)))
