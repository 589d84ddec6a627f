"""`--ray_address=local`: a cluster that is there for the job, and gone with it."""

import time

import pytest

from tests.engines.ray.jobs import RayJobs
from tests.harness.processes import process_info

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def test_a_cluster_is_started_for_the_job_and_ends_with_it(jobs: RayJobs):
    running = jobs.start("--ray_address=local", "--nproc-per-node=2", steps=8, pause=0.2)
    jobs.wait_for_step(running, 1)
    # The job's own: those of the tests' cluster bear another token.
    assert any("raylet" in process_info(pid).command for pid in running.processes())
    finished = running.finish(90)
    ended = time.monotonic()
    assert finished.returncode == 0, finished
    assert jobs.checkpoint() == 8
    assert {step.world for step in jobs.steps()} == {2}
    [extensions] = jobs.events("extensions")
    assert extensions["deployment"]["mode"] == "job"
    jobs.assert_nothing_left(running, ended)
