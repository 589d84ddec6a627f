"""What surrounds one agent: its run directory, its journal, and its voice on stderr."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli import __version__
from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch.outcome import RunReport
from dlrover_cli.launch.rebuild import Resume
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.run_dir import SCHEMA_VERSION, RunDirectory, create_run_directory


@dataclass(frozen=True, slots=True)
class Session:
    """Opened for one launch; closed on every way out by whoever opened it."""

    run_directory: RunDirectory
    events: EventLog
    say: Callable[[str], None]
    report: RunReport
    counters: Counters = field(default_factory=Counters)
    """Where the counting goes on."""

    def close(self, error: BaseException | None) -> None:
        """Record the end and close the journal."""
        document = self.report.document(error)
        self.events.record(
            "run_finished", **{key: document[key] for key in ("outcome", "exit_code", "reason")}
        )
        self.events.close()


def open_session(
    report: RunReport,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    job: Mapping[str, Any],
    resume: Resume | None = None,
) -> Session:
    """Make the run directory and start the journal, or go on with those of a resumed run."""
    if resume is not None:
        return _reopen(report, say, resume)
    directory = create_run_directory(environ, say)
    report.run_directory = directory
    events = EventLog(directory.events, directory.run_id, say)
    directory.write_document(
        "job.json",
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": directory.run_id,
            "version": __version__,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pid_start_time": _start_time(),
            "started": time.time(),
            "cwd": os.getcwd(),
            **job,
        },
    )
    events.record("run_started", argv=report.argv, pid=os.getpid(), host=socket.gethostname())
    return Session(directory, events, say, report)


def _reopen(report: RunReport, say: Callable[[str], None], resume: Resume) -> Session:
    directory = RunDirectory(Path(resume.run_directory), resume.run_id, resume.agent, say)
    report.run_directory, report.started = directory, resume.started
    events = EventLog(directory.events, directory.run_id, say)
    events.record("run_resumed", argv=report.argv, pid=os.getpid(), host=socket.gethostname())
    return Session(directory, events, say, report, resume.counters)


def _start_time() -> int | None:
    """The kernel's start time of this process: with the pid, it names the process for good."""
    try:
        return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return None
