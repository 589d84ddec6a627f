"""Several agents of one job on this machine, and what they write down about it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import kill_processes_of
from benchmarks.track import SCRUBBED

_HOST_A_STORE = """\
import os, sys
from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
os._exit(0)
"""


class JobFailed(Exception):
    """A job that did not do what was to be measured; the message is the reason."""


@dataclass(slots=True)
class Journal:
    """Reads the events of one agent as they are written."""

    state: Path
    _offset: int = 0
    _path: Path | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> list[dict[str, Any]]:
        """The events that are new since the last call."""
        if self._path is None:
            found = list(self.state.glob("dlrover/runs/*/nodes/*/events.jsonl"))
            if not found:
                return []
            [self._path] = found
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [json.loads(line) for line in whole.splitlines()]
        self.events += new
        return new

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def result(self) -> dict[str, Any]:
        [path] = self.state.glob("dlrover/runs/*/result.json")
        document: dict[str, Any] = json.loads(path.read_text())
        return document


@dataclass(frozen=True, slots=True)
class Agent:
    """One launcher of the job."""

    process: "subprocess.Popen[bytes]"
    journal: Journal
    stderr: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Field:
    """A scratch directory for one job; its end leaves no process and no file."""

    directory: Path
    temporary: Path

    def agent(
        self, name: str, arguments: Sequence[object], environ: Mapping[str, str] | None = None
    ) -> Agent:
        """Start one launcher with a state directory of its own."""
        state = self.directory / f"state.{name}"
        stderr = self.directory / f"stderr.{name}"
        scrubbed = {k: v for k, v in os.environ.items() if not k.startswith(SCRUBBED)}
        with stderr.open("wb") as errors:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("dlrover-run")), *map(str, arguments)],
                cwd=self.directory,
                env={
                    **scrubbed,
                    "RACE_DIRECTORY": str(self.directory),
                    "XDG_STATE_HOME": str(state),
                    "TMPDIR": str(self.temporary),
                    "OMP_NUM_THREADS": "1",
                    **(environ or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        return Agent(process, Journal(state), stderr)


@contextlib.contextmanager
def field_for_a_job() -> Iterator[Field]:
    """Where a job may run; whatever it leaves behind is removed."""
    directory = Path(tempfile.mkdtemp(prefix="dlrover-field-"))
    temporary = directory / "tmp"
    temporary.mkdir()
    try:
        yield Field(directory, temporary)
    finally:
        kill_processes_of(directory)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def store_outside_the_agents() -> Iterator[int]:
    """The port of a store in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOST_A_STORE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def meeting_at(port: int, nodes: int) -> list[str]:
    """The options with which so many nodes meet over that store."""
    return [
        f"--nnodes={nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        f"--rdzv-id={uuid.uuid4().hex}",
        "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=1",
        "--local-addr=127.0.0.1",
    ]
