"""All that the files of one run tell about it, as one document."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlrover_cli.cli.run_view import as_document
from dlrover_cli.jobs.ledger import RunRow
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import LATEST
from dlrover_cli.telemetry.events import read_events

_TOLD_BEFORE = ("platform", "engine", "job_name", "queue", "priority")
_ATTEMPT_KINDS = ("workers_started", "failure", "decision")


def details_of(row: RunRow) -> dict[str, Any]:
    """The run, its history, its job, its attempts and its files. What cannot be read is missing."""
    files = RunFiles(row.directory)
    is_owner_alive = row.owner.is_alive() if row.owner is not None and row.owner.is_here else None
    return {
        "run": as_document(row) | {"is_owner_alive": is_owner_alive},
        "job": _read_document(files.job),
        "result": _read_document(files.result),
        "history": _history(files.events),
        "attempts": _attempts(files.nodes),
        "files": list(_files(files.path)),
    }


def configuration_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the job file said about this job: without classes, and without what was left out."""
    encoded = job.get("job")
    config = encoded.get("job_config") if isinstance(encoded, dict) else None
    told = _without_classes(config)
    if not isinstance(told, dict):
        return {}
    return {key: value for key, value in told.items() if key not in _TOLD_BEFORE and value != 0}


def _read_document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _history(path: Path) -> list[dict[str, Any]]:
    """The events of the run's life, in their order."""
    return [
        {"time": _time(event), "kind": event.get("kind"), "data": _data(event)}
        for event in read_events(path)
    ]


def _attempts(nodes: Path) -> list[dict[str, Any]]:
    """Each time that workers were started, on all nodes together, with what became of it."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(nodes.glob("*/events.jsonl")):
        for event in read_events(path, _ATTEMPT_KINDS):
            if isinstance(event.get("attempt"), int):
                _add_to_attempt(found, event)
    return [found[number] for number in sorted(found)]


def _add_to_attempt(found: dict[int, dict[str, Any]], event: Mapping[str, Any]) -> None:
    number, data = event["attempt"], _data(event)
    attempt = found.setdefault(
        number,
        {"attempt": number, "started": None, "workers": 0, "failures": [], "decision": None},
    )
    match event.get("kind"):
        case "workers_started":
            times = filter(None, (attempt["started"], _time(event)))
            attempt["started"] = min(times, default=None)
            attempt["workers"] += len(data.get("workers") or ())
        case "failure":
            failure = {key: data.get(key) for key in ("number", "failure_kind", "ranks")}
            attempt["failures"].append(failure | {"rank": data.get("root_rank")})
        case "decision":
            keys = ("strategy", "decided_by", "action", "reason", "exit_code")
            attempt["decision"] = {key: data.get(key) for key in keys}


def _time(event: Mapping[str, Any]) -> float | None:
    """None for what could not be shown as a date."""
    time = event.get("time")
    return time if isinstance(time, int | float) and abs(time) < LATEST else None


def _data(event: Mapping[str, Any]) -> dict[str, Any]:
    data = event.get("data")
    return data if isinstance(data, dict) else {}


def _files(directory: Path) -> Iterator[dict[str, Any]]:
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            try:
                size = path.stat(follow_symlinks=False).st_size
            except OSError:  # gone meanwhile
                continue
            yield {"path": str(path.relative_to(directory)), "size": size}


def _without_classes(value: Any) -> Any:
    match value:
        case {"__class__": _, "value": enum_value, **rest} if not rest:
            return enum_value
        case dict():
            kept = {key: _without_classes(value[key]) for key in value if key != "__class__"}
            return {key: each for key, each in kept.items() if each not in (None, {}, [])}
        case list():
            return [_without_classes(each) for each in value]
        case _:
            return value
