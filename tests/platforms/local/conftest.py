"""Fixtures of the local platform's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.local.job_processes import JobProcesses


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[JobProcesses]:
    """Processes of one run; see `JobProcesses`."""
    directory = tmp_path / "processes"
    directory.mkdir()
    made = JobProcesses(directory)
    yield made
    made.close()
