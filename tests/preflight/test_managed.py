"""A job with a manager: a node that takes another's place is checked with those that were there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import LaunchSession, Running
from tests.manager.managed_job import JobStarter


@pytest.mark.full
def test_a_replacement_is_checked_together_with_those_that_were_there(
    start: Callable[..., Running], launch_session: LaunchSession, tmp_path: Path
) -> None:
    job = JobStarter(start, launch_session, tmp_path)("n1 n2 n3", "--precheck=1")
    job.wait_for_steps(attempt=0, ranks=2)
    job.order("lose_node n2")
    job.wait_for_steps(attempt=1, ranks=2)
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert len(job.events("preflight_result", agent="n1.0")) == 2
    assert len(job.events("preflight_result", agent="n3.2")) == 1
