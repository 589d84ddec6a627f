"""The directory of one run: who wrote what where, and how a result gets there in one piece.

    <state>/runs/<run_id>/
        job.json            what was asked for
        events.jsonl        the states it was in, and whose it is
        result.json         how it ended
        nodes/<agent>/      one writer each
            events.jsonl, live.json, samples.jsonl
            logs/attempt_<k>/<global rank>/{stdout.log, stderr.log, error.json}
            failures/<n>.json

Everything is private to the user. Files of an attempt are never overwritten by a later one.
"""

import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.documents import plain
from dlrover_cli.errors import LaunchError
from dlrover_cli.telemetry.whole_writes import replacing

SCHEMA_VERSION = 1


def new_run_id(now: float | None = None) -> str:
    """A name that sorts by time and is unique per launch."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{stamp}-{secrets.token_hex(3)}"


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where runs are kept: ``$XDG_STATE_HOME/dlrover``, by default ``~/.local/state/dlrover``."""
    base = environ.get("XDG_STATE_HOME", "")
    # The XDG specification tells programs to ignore relative paths here.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return root / "dlrover"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run on one node. Every writing method survives a full or read-only disk."""

    path: Path
    run_id: str
    agent: str
    on_problem: Callable[[str], None]

    @property
    def node(self) -> Path:
        return self.path / "nodes" / self.agent

    @property
    def events(self) -> Path:
        return self.node / "events.jsonl"

    @property
    def life(self) -> Path:
        """The journal of the run as a whole."""
        return self.path / "events.jsonl"

    @property
    def logs(self) -> Path:
        return self.node / "logs"

    def write_document(self, name: str, content: Mapping[str, Any]) -> Path | None:
        """Write ``name`` below the run directory in one piece; if it cannot be, say so."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json_atomically(path, content)
        except OSError as error:
            self.on_problem(f"cannot write {path}: {error.strerror}")
            return None
        return path

    @property
    def failures(self) -> Path:
        return self.node / "failures"

    def write_failure(self, number: int, content: Mapping[str, Any]) -> Path | None:
        """Keep one failure for later replay."""
        return self.write_document(f"nodes/{self.agent}/failures/{number}.json", content)


def create_run_directory(
    environ: Mapping[str, str], on_problem: Callable[[str], None], agent: str | None = None
) -> RunDirectory:
    """Make the directory of a new run; fall back to a temporary one, saying so in one line."""
    run_id, agent = new_run_id(), agent or _agent_name()
    state = state_directory(environ)
    try:
        return _create(state / "runs", run_id, agent, on_problem)
    except OSError as error:
        reason = error.strerror
    try:
        fallback = Path(tempfile.mkdtemp(prefix="dlrover-"))
        on_problem(f"cannot keep the run under {state}: {reason}; it is kept in {fallback} instead")
        return _create(fallback / "runs", run_id, agent, on_problem)
    except OSError as error:
        raise LaunchError(
            f"no directory can be made for the run: {state}: {reason}; "
            f"temporary files: {error.strerror}",
            hint="set XDG_STATE_HOME or TMPDIR to a writable directory with free space",
        ) from error


def join_run_directory(
    path: Path, run_id: str, agent: str | None, on_problem: Callable[[str], None]
) -> RunDirectory:
    """This agent's place in the directory of a run that somebody else has made."""
    agent = name = agent or _agent_name()
    number = 1
    while (path / "nodes" / agent).exists():  # in a run of months, pids come again
        agent, number = f"{name}.{number}", number + 1
    try:
        return _create(path.parent, run_id, agent, on_problem)
    except OSError as error:
        raise LaunchError(
            f"cannot write to the run directory {path}: {error.strerror}",
            hint="it is where whoever submitted this job keeps the run",
        ) from error


def write_json_atomically(path: Path, content: Mapping[str, Any]) -> None:
    """Replace ``path`` by the document, which is on the disk when this returns."""
    text = json.dumps(plain(content), indent=2) + "\n"
    with replacing(path) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _agent_name() -> str:
    return f"{socket.gethostname()}.{os.getpid()}"


def _create(runs: Path, run_id: str, agent: str, on_problem: Callable[[str], None]) -> RunDirectory:
    for path in (runs.parent, runs):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory = RunDirectory(runs / run_id, run_id, agent, on_problem)
    for path in (directory.path, directory.path / "nodes", directory.node):
        path.mkdir(mode=0o700, exist_ok=True)
    for path in (directory.logs, directory.failures):
        path.mkdir(mode=0o700)
    return directory
