"""Runs on their way into existence: a run exists once its ``job.json`` does.

The runs of one submission come into existence together: once the first one is there, the others
are put there too, by the submitter or, if that was killed, by their runners.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import new_run_id, write_json_atomically

_STAGED = ".job.json.staged"


@contextmanager
def claimed(state: Path, number: int) -> Iterator[tuple[RunFiles, ...]]:
    """Directories for so many runs. Unless the runs exist, an error takes them away again.

    Raises OSError or LaunchError if they cannot be made.
    """
    runs = state / "runs"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    files: list[RunFiles] = []
    try:
        for _ in range(number):
            files.append(_claim(runs))
            # Whoever finds the directory later knows at once whether somebody is at work on it.
            tell(files[-1], "submitted", by=ProcessIdentity.own())
        yield tuple(files)
    except BaseException:
        if not files or not files[0].job.exists():
            for each in files:
                discard(each)
        raise


def stage(files: RunFiles, document: JobDocument) -> None:
    """Put everything there but the last rename. Raises OSError."""
    files.nodes.mkdir(mode=0o700)
    write_json_atomically(_staged(files), document.to_json())


def tell(files: RunFiles, kind: str, **processes: ProcessIdentity) -> None:
    """Record an event of a run that does not exist yet. Raises LaunchError."""
    events = EventLog(files.events, files.run_id, _refuse)
    events.record(kind, **{name: each.to_json() for name, each in processes.items()})
    events.close()


def commit(files: RunFiles) -> None:
    """Let the run exist. Somebody else may have done it already."""
    with suppress(FileNotFoundError):
        _staged(files).rename(files.job)


def settle(files: RunFiles, leader: RunFiles) -> bool:
    """What a runner does when its submitter is gone: whether the run exists; if not, no trace."""
    if leader.job.exists():
        commit(files)
    if files.job.exists():
        return True
    discard(files)
    return False


def discard(files: RunFiles) -> None:
    """Remove the directory of a run that does not exist, or no longer."""
    shutil.rmtree(files.path, ignore_errors=True)


def _claim(runs: Path) -> RunFiles:
    """A directory that nobody else has: ids of the same second may be the same."""
    while True:
        files = RunFiles(runs / new_run_id())
        with suppress(FileExistsError):
            files.path.mkdir(mode=0o700)
            return files


def _refuse(line: str) -> None:
    raise LaunchError(
        f"the run cannot be recorded: {line.removesuffix('; going on without')}",
        hint="set XDG_STATE_HOME to a directory that can be written and has free space",
    )


def _staged(files: RunFiles) -> Path:
    return files.path / _STAGED
