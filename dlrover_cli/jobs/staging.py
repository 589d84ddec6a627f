"""A run on its way into existence: it exists once its ``job.json`` does.

The runs of one submission come into existence together: once the first one is there, the others
are put there too, by the submitter or, if that was killed, by their runners.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.telemetry.run_dir import write_json_atomically

_STAGED = ".job.json.staged"


def stage(files: RunFiles, document: JobDocument) -> None:
    """Make the directory with everything but the last rename. Raises OSError."""
    files.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for directory in (files.path, files.nodes):
        directory.mkdir(mode=0o700)
    write_json_atomically(_staged(files), document.to_json())


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


def _staged(files: RunFiles) -> Path:
    return files.path / _STAGED
