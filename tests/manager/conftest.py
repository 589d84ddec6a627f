"""Managed jobs on make-believe nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import LaunchSession, Running
from tests.manager.managed_job import JobStarter


@pytest.fixture
def manage(
    start: Callable[..., Running], launch_session: LaunchSession, tmp_path: Path
) -> JobStarter:
    """`manage("n1 n2", *options, nnodes="2", …) -> ManagedJob`."""
    return JobStarter(start, launch_session, tmp_path)
