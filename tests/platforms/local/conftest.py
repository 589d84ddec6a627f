"""Fixtures of the local platform's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.local.job_processes import JobProcesses
from tests.platforms.local.running_job import LocalJobs


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[JobProcesses]:
    """Processes of one run; see `JobProcesses`."""
    directory = tmp_path / "processes"
    directory.mkdir()
    made = JobProcesses(directory)
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of the job file."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def jobs(tmp_path: Path, project: Path) -> Iterator[LocalJobs]:
    """Makes jobs of local plugins; see `LocalJobs`."""
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o700)
    made = LocalJobs(project, runs)
    yield made
    made.close()
