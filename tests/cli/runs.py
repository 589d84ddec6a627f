"""Runs for the commands to look at, told as real ones are, but without their processes."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli import __version__
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import new_run_id
from dlrover_cli.workers.log_file import RECORD

JOB = {
    "__class__": "dlrover_cli.contracts.jobs::BaseJob",
    "job_config": {
        "__class__": "dlrover_cli.contracts.jobs::BaseJobConfig",
        "platform": "local",
        "periodic_config": None,
        "properties": {"script": "train.py", "args": ["--epochs", "3"]},
    },
}
_WAYS = {
    RunState.PENDING: (),
    RunState.STARTING: (RunState.STARTING,),
    RunState.RUNNING: (RunState.STARTING, RunState.RUNNING),
    RunState.STOPPING: (RunState.STARTING, RunState.RUNNING, RunState.STOPPING),
    RunState.FINISHED: (RunState.STARTING, RunState.RUNNING, RunState.FINISHED),
    RunState.FAILED: (RunState.STARTING, RunState.RUNNING, RunState.FAILED),
    RunState.KILLED: (RunState.STARTING, RunState.STOPPING, RunState.KILLED),
    RunState.LOST: (RunState.STARTING, RunState.RUNNING, RunState.LOST),
    RunState.SKIPPED: (RunState.SKIPPED,),
}


@dataclass(frozen=True, slots=True)
class Runs:
    """Keeps runs in a state directory, as the product does."""

    state: Path

    def add(
        self,
        name: str = "train",
        state: RunState = RunState.FINISHED,
        *,
        exit_code: int | None = None,
        reason: str = "",
        submitted: float = 1_700_000_000.0,
        engine: str = "torch",
        platform: str = "local",
        owner: ProcessIdentity | None = None,
        argv: Sequence[str] | None = None,
        after: Sequence[str] = (),
    ) -> RunFiles:
        """A run that has come to this state. Its owner is this process, unless told."""
        files = RunFiles.of(self.state, new_run_id(submitted))
        files.nodes.mkdir(parents=True, mode=0o700)
        document = JobDocument(
            run_id=files.run_id,
            name=name,
            platform=platform,
            engine=engine,
            submission="5ub",
            submitted=submitted,
            host=socket.gethostname(),
            cwd="/project",
            version=__version__,
            after=tuple(after),
            job=None if argv is not None else JOB,
            argv=None if argv is None else tuple(argv),
        )
        with Ledger.open(self.state) as ledger:
            record = RunRecord.create(files, ledger, document, print)
            record.own(owner or ProcessIdentity.own())
            for step in _WAYS[state]:
                is_last = step is state
                record.move(
                    step,
                    reason=reason if is_last else "",
                    exit_code=exit_code if is_last else None,
                )
            record.close()
        return files


def write_log(
    files: RunFiles, attempt: int, rank: int, stream: str, text: str, at: float | None = None
) -> Path:
    """Append to a worker's output; ``at`` a time that is taken down."""
    directory = files.nodes / "node.1" / "logs" / f"attempt_{attempt}" / str(rank)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{stream}.log"
    if at is not None:
        with path.with_suffix(".times").open("ab") as times:
            times.write(RECORD.pack(path.stat().st_size if path.exists() else 0, int(at * 1e9)))
    with path.open("a") as file:
        file.write(text)
    return path


def dead_process() -> ProcessIdentity:
    """One of this host that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    identity = ProcessIdentity.of(pid)
    os.waitpid(pid, 0)
    return identity
