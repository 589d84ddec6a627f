"""Runs for tests: documents, directories, and processes that are gone."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.jobs.ledger_rows import row_of
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity

PATHS = {
    RunState.PENDING: (),
    RunState.STARTING: (RunState.STARTING,),
    RunState.RUNNING: (RunState.STARTING, RunState.RUNNING),
    RunState.STOPPING: (RunState.STARTING, RunState.RUNNING, RunState.STOPPING),
    RunState.FINISHED: (RunState.STARTING, RunState.RUNNING, RunState.FINISHED),
    RunState.FAILED: (RunState.STARTING, RunState.RUNNING, RunState.FAILED),
    RunState.KILLED: (RunState.STOPPING, RunState.KILLED),
    RunState.LOST: (RunState.LOST,),
    RunState.SKIPPED: (RunState.SKIPPED,),
}
"""One way from PENDING into each state."""


def document(run_id: str, **changes: Any) -> JobDocument:
    made = JobDocument(
        run_id=run_id,
        name="train",
        platform="local",
        engine="cmd_line",
        submission="s1",
        submitted=time.time(),
        host="here",
        cwd="/",
        version="0.1.0",
    )
    return replace(made, **changes)


def row(state_directory: Path, run_id: str, **changes: Any) -> RunRow:
    """A row as that of a run that was just submitted."""
    path = RunFiles.of(state_directory, run_id).path
    return replace(row_of(document(run_id), Story(), path), **changes)


def new_run(
    state: Path,
    run_id: str,
    ledger: Ledger | None,
    problems: list[str] | None = None,
    **changes: Any,
) -> RunRecord:
    """A run whose directory was just made. The ledger is told if there is one."""
    files = RunFiles.of(state, run_id)
    files.path.mkdir(parents=True, mode=0o700)
    said = print if problems is None else problems.append
    return RunRecord.create(files, ledger, document(run_id, **changes), said)


def move_to(record: RunRecord, state: RunState) -> None:
    for each in PATHS[state]:
        record.move(each)


def ended_process() -> ProcessIdentity:
    """A process of this host and boot that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return ProcessIdentity.of(process.pid)  # it ends with its stdin, and is waited for


def reused_pid() -> ProcessIdentity:
    """A process that has ended, whose pid is another one's now: this one's."""
    own = ProcessIdentity.own()
    assert own.start_time is not None
    return replace(own, start_time=own.start_time - 1)


def elsewhere() -> ProcessIdentity:
    """A process of another host, of which nothing can be known here."""
    return replace(ProcessIdentity.own(), host="another-host")
