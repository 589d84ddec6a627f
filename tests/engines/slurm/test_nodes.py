"""Trainings on real Slurm nodes go on when a node is lost, or when Slurm requeues the job."""

import pytest

from tests.engines.slurm.engine import Slurm
from tests.engines.slurm.jobs import GATE, STEPS, SlurmJob, SlurmJobs
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

EVERY_STEP = list(range(1, STEPS + 1))


def test_a_job_shrinks_when_a_node_dies_and_grows_when_it_returns(submit: SlurmJobs, slurm: Slurm):
    job = submit("--nnodes=1:2", "--slurm_arg=exclude=n3")
    attempt = job.wait_for_gate(ranks=2)
    slurm.lose_node("n2")
    assert job.wait_for_gate(ranks=1) == attempt + 1
    eventually(lambda: slurm.states()["n2"].startswith("down"), 60, what="a dead node")
    slurm.start_node("n2")
    assert job.wait_for_gate(ranks=2) == attempt + 2
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    [alone] = job.started(attempt + 1)
    assert (alone["step"], alone["world_size"], alone["node"]) == (GATE, 1, "n1")
    assert {fact["node"] for fact in job.started(attempt + 2)} == {"n1", "n2"}
    assert job.result["attempts"] == attempt + 3
    assert [event["node"] for event in job.events("agent_lost")] == ["n2"]
    # Slurm had taken the node out of the allocation: it came back with a job of its own.
    assert [event["instead_of"] for event in job.events("node_requested")] == [["n2"]]


def test_a_job_goes_on_on_a_spare_when_a_node_dies(submit: SlurmJobs, slurm: Slurm):
    kept = submit.directory / "result.json"
    job = submit("--nnodes=2", "--slurm_arg=spares=1", f"--result-file={kept}")
    assert job.wait_for_gate() == 0
    slurm.lose_node("n2")
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    assert {fact["node"] for fact in job.started(0)} == {"n1", "n2"}
    assert {fact["node"] for fact in job.started(1)} == {"n1", "n3"}
    assert sorted(finished.stdout.splitlines()) == [
        f"rank {rank} of 2 took {STEPS} steps" for rank in (0, 1)
    ]
    result = job.result
    assert (result["outcome"], result["exit_code"], result["attempts"]) == ("succeeded", 0, 2)
    assert kept.read_text() == (job.run_directory / "result.json").read_text()
    assert job.events("node_requested") == []
    assert [event["node"] for event in job.events("agent_placed")] == ["n1", "n2", "n3"]


def test_a_requeued_job_keeps_its_run_and_goes_on_with_the_next_attempt(
    submit: SlurmJobs, slurm: Slurm
):
    job = submit("--nnodes=2")
    assert job.wait_for_gate() == 0
    slurm.run("scontrol", "requeue", job.id)
    job.running.wait_for("for the 2. time", 60)
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    assert [fact["step"] for fact in job.started(1)] == [GATE, GATE]
    assert_went_on_in_the_same_run(job)


def test_the_run_goes_on_when_the_node_of_its_manager_dies(submit: SlurmJobs, slurm: Slurm):
    job = submit("--nnodes=2")
    assert job.wait_for_gate() == 0
    slurm.lose_node("n1")
    job.running.wait_for("for the 2. time", 90)
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    assert "n1" not in {fact["node"] for fact in job.started(1)}
    assert_went_on_in_the_same_run(job)


def assert_went_on_in_the_same_run(job: SlurmJob) -> None:
    """Two managers, one after the other: one run, one id, and every attempt on record."""
    result = job.result
    assert (result["exit_code"], result["attempts"]) == (0, 2)
    assert result["run_id"] == job.run_directory.name
    assert len(list(job.run_directory.glob("nodes/manager*"))) == 2
    assert [fact["attempt"] for fact in job.scripts.facts("start")] == [0, 0, 1, 1]
