"""A job on Ray is asked where its manager runs, and every node of it answers."""

import pytest

from tests.engines.ray.jobs import RayJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def test_all_nodes_show_their_stacks_and_are_aborted(jobs: RayJobs):
    running = jobs.start("--nnodes=2", steps=1_000_000)
    jobs.wait_for_step(running, 3)
    shown = jobs.job("stacks", "--wait", "5")
    assert shown.returncode == 0, shown
    assert shown.stdout.splitlines()[0] == "2 ranks on 2 nodes:"
    restarted = jobs.job("restart")
    assert "all 2 nodes are stopped and started again as attempt 1" in restarted.stdout, restarted
    jobs.wait_for_step(running, 3, where=lambda step: step.attempt == 1)
    aborted = jobs.job("abort")
    assert "exit code 82, and nothing retries" in aborted.stdout, aborted
    finished = running.finish(60)
    assert finished.returncode == 82, finished
    assert jobs.result()["outcome"] == "aborted"
