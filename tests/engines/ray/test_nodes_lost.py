"""Nodes that go and come while a training runs."""

import time
from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

EXTENSION = """\
import json, os
from dlrover.python.unified.controller.extension import ManagerExtension

class Witness(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes):
        with open(os.environ["WITNESS_FILE"], "a") as file:
            deployment = self.manager.deployment
            file.write(json.dumps([[n.id for n in nodes], deployment.engine]) + "\\n")
        return []
"""


def install_witness(directory: Path) -> dict[str, str]:
    """A distribution with the extension in it; the environment that makes it importable."""
    info = directory / "site" / "witness-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: witness\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrover.unified.extension]\nw = witness:Witness\n")
    (directory / "site" / "witness.py").write_text(EXTENSION)
    return {
        "PYTHONPATH": str(directory / "site"),
        "WITNESS_FILE": str(directory / "witness.txt"),
    }


def test_training_goes_on_on_a_spare_when_a_node_is_killed(jobs: RayJobs, tmp_path: Path):
    running = jobs.start("--nnodes=2", steps=60, pause=0.5, env=install_witness(tmp_path))
    jobs.wait_for_step(running, 5)
    lost = jobs.node_of(rank=1)
    jobs.engine.lose(lost)
    finished = running.finish(90)

    assert finished.returncode == 0, finished
    steps = jobs.steps()
    assert {step.attempt for step in steps} == {0, 1}
    assert jobs.checkpoint() == 60
    assert {step.number for step in steps if step.rank == 0} == set(range(1, 61))
    assert lost not in {jobs.node_of(0, attempt=1), jobs.node_of(1, attempt=1)}
    # Called once, about that node, and told what it is about.
    assert (tmp_path / "witness.txt").read_text() == f'[["{lost}"], "ray"]\n'
    # The story: lost, replaced, placed elsewhere, met again.
    assert [each["gone"] for each in jobs.events("nodes")][-1] == [lost]
    [replacing] = jobs.events("replacing")
    assert replacing["node"] == lost
    assert [each["attempt"] for each in jobs.events("round")] == [0, 1]
    assert len(jobs.events("agent_placed")) == 3
    assert result_of_two_attempts(jobs)
    # Every rank of both attempts is in the run directory, and was shown; Ray's own words were not.
    assert "rank 1 of 2 goes on after step 0" in jobs.output_of(rank=1, attempt=0)
    for rank in (0, 1):
        assert f"rank {rank} of 2 goes on after step" in jobs.output_of(rank, attempt=1)
        assert f"rank {rank} of 2 goes on after step 0" in finished.stdout
    assert "raylet" not in finished.stdout


def result_of_two_attempts(jobs: RayJobs) -> bool:
    """A lost node is nobody's failure, and charges nothing."""
    result = jobs.result()
    assert (result["outcome"], result["exit_code"], result["attempts"]) == ("succeeded", 0, 2)
    assert (result["restart_count"], result["generation"]) == (0, 0)
    return True


def test_no_rank_of_a_node_without_its_raylet_steps_beside_its_successor(jobs: RayJobs):
    running = jobs.start("--nnodes=2", steps=60, pause=0.5)
    jobs.wait_for_step(running, 5)
    jobs.engine.lose_raylet(jobs.node_of(rank=1))
    finished = running.finish(90)

    assert finished.returncode == 0, finished
    before = [step.time for step in jobs.steps() if step.attempt == 0]
    after = [step.time for step in jobs.steps() if step.attempt == 1]
    assert max(before) < min(after)
    assert jobs.checkpoint() == 60
    assert result_of_two_attempts(jobs)


def test_a_job_grows_when_a_node_joins_and_nothing_is_left_when_it_is_stopped(jobs: RayJobs):
    for node in jobs.engine.nodes[2:]:
        jobs.engine.lose(node)
    running = jobs.start("--nnodes=1:3", steps=2000)
    jobs.wait_for_step(running, 3, where=lambda step: step.world == 2)
    jobs.engine.add()
    jobs.wait_for_step(running, 3, where=lambda step: step.world == 3)
    run = jobs.run_directory().name
    since = time.monotonic()
    stopped = jobs.job("stop", run)
    assert stopped.returncode == 0, stopped
    jobs.assert_nothing_left(running, since)
    jobs.wait_until_free()
    finished = running.finish(10)
    assert finished.returncode == 128 + 15, finished
    assert "KILLED" in jobs.job("list", "--all").stdout
    assert jobs.result()["outcome"] == "signalled"
