"""Processes for tests to end: each says where it is in a file of its own, and how it takes TERM."""

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlrover_cli.platforms.local.run_processes import RUN_ID_VARIABLE
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually

PRELUDE = """
import os, signal, sys, time
HERE = sys.argv[1]
END = time.monotonic() + 60  # nobody is to outlive a test that has failed to end him

def goes_on():
    return time.monotonic() < END

def ready(name):
    with open(f"{HERE}/{name}.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{HERE}/{name}.part", f"{HERE}/{name}")

def note(name, text="x"):
    with open(f"{HERE}/{name}", "a") as file:
        file.write(text)

def ignore_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def for_ever():
    while goes_on():
        signal.sigtimedwait([], END - time.monotonic())
"""


@dataclass
class JobProcesses:
    """Starts Python snippets as processes of a run; all end with the test."""

    directory: Path
    run_id: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")
    children: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(
        self, code: str, *, env: Mapping[str, str] | None = None, run_id: str | None = None
    ) -> ProcessIdentity:
        """Run the snippet in a session of its own, marked as of this run, or of another one."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PRELUDE + code, str(self.directory)],
            env={**os.environ, RUN_ID_VARIABLE: run_id or self.run_id, **(env or {})},
            start_new_session=True,
        )
        self.children.append(process)
        return ProcessIdentity.of(process.pid)

    def ready(self, name: str) -> ProcessIdentity:
        """The process that has called `ready(name)`, waiting for it."""
        path = self.directory / name
        eventually(path.exists, what=f"{name} is ready")
        return ProcessIdentity.of(int(path.read_text()))

    def notes(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for process in self.children:
            process.kill()
            process.wait()


def all_gone(*identities: ProcessIdentity) -> bool:
    return not any(identity.is_alive() or is_alive(identity.pid) for identity in identities)
