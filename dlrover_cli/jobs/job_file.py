"""Job files: YAML or TOML in AI Flow's shape, in which each top-level key is a job.

    prepare:
      engine: cmd_line
      properties: {command: [python, prepare.py]}
    train:
      engine: torch
      after: [prepare]
      properties: {script: train.py, nproc_per_node: 2}

The whole file is checked before anything is made of it; every complaint has the file and the line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.config.values import shown
from dlrover_cli.contracts.jobs import ProjectDesc
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.document import Document, read_document
from dlrover_cli.jobs.job_config import make_config, make_sub_graph
from dlrover_cli.jobs.job_entry import JobEntry, read_entry
from dlrover_cli.jobs.job_values import suggestion

__all__ = [
    "JobEntry",
    "JobFile",
    "make_config",
    "make_sub_graph",
    "project_of",
    "read_job_file",
]


@dataclass(frozen=True, slots=True)
class JobFile:
    """The jobs of a file, each after those that it waits for."""

    path: Path
    jobs: tuple[JobEntry, ...]


def read_job_file(path: Path) -> JobFile:
    """The jobs that a file describes. Raises UsageError."""
    document = read_document(path)
    if document.value is None or document.value == {}:
        raise UsageError(f"{path}: there is no job in it", hint=_shape(document))
    if not isinstance(document.value, dict):
        kind = shown(document.value)
        raise UsageError(
            f"{path}:1: a job file is a mapping of jobs, and this is {kind}", hint=_shape(document)
        )
    entries = {name: read_entry(document, name) for name in document.value}
    for entry in entries.values():
        _check_after(entry, entries)
    return JobFile(path, _in_order(entries))


def project_of(job_file: JobFile) -> ProjectDesc:
    """Where the jobs of a file come from; relative paths in it are meant from its directory."""
    return ProjectDesc(
        project_name=job_file.path.stem, project_path=str(job_file.path.absolute().parent)
    )


def _shape(document: Document) -> str:
    return (
        "Write the name of a job, such as train, and below it "
        f"{document.example('engine', 'torch')} and its other keys."
    )


def _check_after(entry: JobEntry, entries: Mapping[str, JobEntry]) -> None:
    for position, name in enumerate(entry.after):
        keys = ("after", position)
        if name == entry.name:
            raise entry.wrong(f"job {name!r} cannot come after itself", "Leave it out.", *keys)
        if name not in entries:
            others = tuple(each for each in entries if each != entry.name)
            hint = suggestion(name, others) if others else "There is no other job in this file."
            raise entry.wrong(f"there is no job {name!r} to come after", hint, *keys)


def _in_order(entries: Mapping[str, JobEntry]) -> tuple[JobEntry, ...]:
    """As in the file, except that what a job comes after is moved in front of it."""
    ordered: dict[str, JobEntry] = {}
    for name in entries:
        # A stack of our own: a chain of jobs may be longer than Python's calls go deep.
        path = [name]
        while path:
            entry = entries[path[-1]]
            waits_for = next((each for each in entry.after if each not in ordered), None)
            if waits_for is None:
                ordered[entry.name] = entry
                path.pop()
            elif waits_for in path:
                raise _circle(entry, [*path[path.index(waits_for) :], waits_for])
            else:
                path.append(waits_for)
    return tuple(ordered.values())


def _circle(entry: JobEntry, names: list[str]) -> UsageError:
    position = entry.after.index(names[-1])
    return entry.wrong(
        f"these jobs wait for each other, so none could start: {' → '.join(names)}",
        f"Take one of the names out of its job's after, such as {names[-1]!r} here.",
        *("after", position),
    )
