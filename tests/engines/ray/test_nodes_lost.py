"""Nodes that go and come while a training runs."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

# Written against DLRover's import path. It keeps what it was asked, and starts a node if it can.
EXTENSION = """\
import json, os, subprocess
from dlrover.python.unified.controller.extension import ManagerExtension

class Relauncher(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes):
        with open(os.environ["ASKED_FILE"], "a") as file:
            deployment = self.manager.deployment
            file.write(json.dumps([[n.id for n in nodes], deployment.engine]) + "\\n")
        if "START_NODE" not in os.environ:
            return []
        environ = {**os.environ, "DLROVER_TEST_TOKEN": os.environ["NODE_TOKEN"]}
        subprocess.Popen(json.loads(os.environ["START_NODE"]), env=environ, start_new_session=True)
        return nodes
"""


def install_extension(directory: Path, **environ: str) -> dict[str, str]:
    """A distribution with the extension in it; the environment that makes it importable."""
    info = directory / "site" / "relauncher-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: relauncher\nVersion: 1.0\n")
    entry = "r = relauncher:Relauncher"
    (info / "entry_points.txt").write_text(f"[dlrover.unified.extension]\n{entry}\n")
    (directory / "site" / "relauncher.py").write_text(EXTENSION)
    asked = str(directory / "asked.txt")
    return {"PYTHONPATH": str(directory / "site"), "ASKED_FILE": asked, **environ}


def test_training_goes_on_on_a_spare_when_a_node_is_killed(jobs: RayJobs, tmp_path: Path):
    running = jobs.start("--nnodes=2", steps=60, pause=0.5, env=install_extension(tmp_path))
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
    assert (tmp_path / "asked.txt").read_text() == f'[["{lost}"], "ray"]\n'
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


def assert_no_step_beside_its_successors(jobs: RayJobs) -> None:
    """No rank of the old generation takes a step after the new generation's first."""
    before = [step.time for step in jobs.steps() if step.attempt == 0]
    after = [step.time for step in jobs.steps() if step.attempt == 1]
    assert max(before) < min(after)
    assert jobs.checkpoint() == 60
    assert result_of_two_attempts(jobs)


def test_an_agent_that_lives_on_on_a_node_that_ray_calls_dead_is_fenced(jobs: RayJobs):
    """Its raylet hangs, so nobody there can end it; its rank waits for nobody, and trains on."""
    jobs.training(together=False)
    running = jobs.start("--nnodes=2", steps=60, pause=0.5)
    jobs.wait_for_step(running, 5, where=lambda step: step.rank == 1)
    lost = jobs.node_of(rank=1)
    at = jobs.engine.hang(lost)
    try:
        finished = running.finish(90)
    finally:
        jobs.engine.lose(lost)

    assert finished.returncode == 0, finished
    in_secret = [step for step in jobs.steps() if (step.attempt, step.rank) == (0, 1)]
    assert max(step.time for step in in_secret) > at + 1
    assert_no_step_beside_its_successors(jobs)
    [fence, *_] = [each for each in jobs.events("fence") if each["node"] == lost]
    *_, placed = jobs.events("agent_placed")
    assert fence["time"] < placed["time"] < min(s.time for s in jobs.steps() if s.attempt == 1)
    assert [each["node"] for each in jobs.events("agent_ended")].count(lost) == 1


def test_the_extension_brings_a_node_in_the_place_of_one_whose_raylet_died(
    jobs: RayJobs, tmp_path: Path
):
    for spare in jobs.engine.nodes[2:]:
        jobs.engine.lose(spare)
    jobs.training(together=False)
    extension = install_extension(
        tmp_path,
        START_NODE=json.dumps(jobs.engine.ray_start(tmp_path / "pid")),
        NODE_TOKEN=jobs.engine.token,
    )
    running = jobs.start("--nnodes=2", steps=60, pause=0.5, env=extension)
    jobs.wait_for_step(running, 5)
    before = set(jobs.engine.nodes)
    lost = jobs.node_of(rank=1)
    jobs.engine.lose_raylet(lost)
    try:
        finished = running.finish(90)
        # Called once, about that node; a node that was not there before has its place.
        assert finished.returncode == 0, finished
        assert (tmp_path / "asked.txt").read_text() == f'[["{lost}"], "ray"]\n'
        [answer] = jobs.events("nodes_relaunched")
        assert (answer["relaunched"], answer["ignored"]) == ([lost], [])
        after = {jobs.node_of(rank, attempt=1) for rank in (0, 1)}
        assert before & after == before - {lost}
        assert len(after - before) == 1
        assert_no_step_beside_its_successors(jobs)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
        jobs.engine.settle()


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
