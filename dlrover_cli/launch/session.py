"""What surrounds one agent: its run directory, its journal, and its voice on stderr."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli import __version__
from dlrover_cli.launch.outcome import RunReport
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.run_dir import SCHEMA_VERSION, RunDirectory, create_run_directory


@dataclass(frozen=True, slots=True)
class Session:
    """Opened for one launch; closed on every way out by whoever opened it."""

    run_directory: RunDirectory
    events: EventLog
    say: Callable[[str], None]
    report: RunReport

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
) -> Session:
    """Make the run directory and start the journal."""
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


def _start_time() -> int | None:
    """The kernel's start time of this process: with the pid, it names the process for good."""
    try:
        return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return None
