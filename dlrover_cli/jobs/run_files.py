"""The files of one run, and the document that says what was asked for.

<state>/runs/<run_id>/
    job.json        the JobDocument
    handler.json    what `submit_job` returned
    result.json     how it ended
    events.jsonl    the life of the run; the truth
    runner.log      what the runner and the plugin print
    stop.json       who asked to stop it, and how many seconds the job gets
    nodes/<agent>/  one writer each
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dlrover_cli.contracts.documents import Document
from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.jobs.story import LATEST
from dlrover_cli.telemetry.stop_request import STOP_REQUEST

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Where the files of a run are; none of them has to exist."""

    path: Path

    @classmethod
    def of(cls, state: Path, run_id: str) -> Self:
        """Those of a run that is kept in the state directory."""
        return cls(state / "runs" / run_id)

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def handler(self) -> Path:
        return self.path / "handler.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def runner_log(self) -> Path:
        return self.path / "runner.log"

    @property
    def stop_request(self) -> Path:
        return self.path / STOP_REQUEST

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"


@dataclass(frozen=True, slots=True)
class JobDocument:
    """What was asked for: enough to run, stop and clean up the job from any process."""

    run_id: str
    name: str
    platform: str
    engine: str
    submission: str
    """What all runs of one submission have in common."""
    submitted: float
    host: str
    cwd: str
    version: str
    after: tuple[str, ...] = ()
    """The ids of the runs that have to succeed first."""
    queue: str | None = None
    priority: int = 0
    plugin: Mapping[str, Any] | None = None
    """Where the plugin comes from; None for a run in the foreground."""
    job: Any = None
    """The job as JSON; None for a run in the foreground."""
    argv: tuple[str, ...] | None = None
    """The command line of a run in the foreground."""
    admission: str | None = None
    """What decides when it may start, such as the path of an extender file."""

    def to_json(self) -> dict[str, Any]:
        document = {"schema_version": SCHEMA_VERSION, **asdict(self), "after": list(self.after)}
        document["argv"] = None if self.argv is None else list(self.argv)
        return document

    @classmethod
    def from_json(cls, data: object, *, where: str = "job.json") -> Self:
        """Raises UsageError, saying what is wrong. Keys that it does not know are left alone."""
        document = Document(data, where=where)
        document.check_schema_version(SCHEMA_VERSION)
        assert isinstance(data, Mapping)
        argv = data.get("argv")
        return cls(
            run_id=document.text("run_id"),
            name=document.text("name"),
            platform=document.text("platform"),
            engine=document.text("engine"),
            submission=document.text("submission"),
            submitted=_number(data, "submitted", where),
            host=document.text("host"),
            cwd=document.text("cwd"),
            version=document.text("version"),
            after=tuple(map(str, document.items("after"))),
            queue=document.optional_text("queue"),
            priority=_priority(document, where),
            plugin=None if data.get("plugin") is None else document.mapping("plugin"),
            job=data.get("job"),
            argv=None if argv is None else tuple(map(str, document.items("argv"))),
            admission=document.optional_text("admission"),
        )


def read_job_document(path: Path) -> JobDocument:
    """Raises LaunchError if the file is not there, cannot be read, or is none."""
    try:
        return JobDocument.from_json(json.loads(path.read_bytes()), where=str(path))
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from error
    except UsageError as error:
        raise LaunchError(error.message, hint=error.hint) from error
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"{path} is no JSON document: {error}") from error


def _priority(document: Document, where: str) -> int:
    priority = document.integer("priority", default=0)
    if abs(priority) >= 1 << 63:
        raise UsageError(f"{where} has a 'priority' that the ledger cannot hold: {priority}")
    return priority


def _number(data: Mapping[Any, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{where} has a {key!r} that must be a number and is {value!r}")
    if not abs(value) < LATEST:
        raise UsageError(f"{where} has a {key!r} that is no time: {value!r}")
    return float(value)
