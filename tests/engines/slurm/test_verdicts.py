"""NODE, GLOBAL and ABORTION on a real Slurm: the same exit codes and results as on one machine."""

import pytest

from tests.engines.slurm.engine import Slurm
from tests.engines.slurm.jobs import GATE, STEPS, SlurmJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

EVERY_STEP = list(range(1, STEPS + 1))


def test_a_node_verdict_takes_the_job_to_another_node(submit: SlurmJobs):
    job = submit("--nnodes=2", submit.verdict("NODE_FAILOVER"), script=submit.training(failures=1))
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    before, after = ({fact["node"] for fact in job.started(attempt)} for attempt in (0, 1))
    assert before == {"n1", "n2"}
    [bad] = [event["node"] for event in job.events("replacing")]
    assert after == before - {bad} | {"n3"}
    # The allocation had no spare: Slurm was asked for a node, and not for the bad one.
    result = job.result
    assert (result["outcome"], result["exit_code"], result["attempts"]) == ("succeeded", 0, 2)
    [request] = job.events("node_requested")
    assert request["instead_of"] == [bad]
    assert job.slurm.run("squeue", "--noheader", f"--jobs={request['job_id']}") == ""


def test_a_global_verdict_starts_the_whole_job_afresh(submit: SlurmJobs):
    job = submit(
        "--nnodes=2", submit.verdict("GLOBAL_FAILOVER"), script=submit.training(failures=1)
    )
    job.go()
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.steps == EVERY_STEP
    assert job.result["generation"] == 1
    assert job.result["attempts"] == 2


def test_an_abortion_ends_the_job_with_82_and_is_never_requeued(submit: SlurmJobs, slurm: Slurm):
    """Although this cluster is set up to requeue jobs that end with this code."""
    assert "RequeueExit=82" in slurm.config.read_text()
    job = submit(
        *("--nnodes=2", submit.verdict("ABORTION_FAILOVER")), script=submit.training(failures=9)
    )
    job.go()
    finished = job.finish()
    assert finished.returncode == 82, finished
    assert job.result["exit_code"] == 82
    assert job.result["outcome"] == "aborted"
    assert job.result["failure"]["workers"][0]["exit_code"] == 7
    assert job.checkpoint == GATE
    submit.wait_for_end(job.id)
    assert "Restarts=0" in slurm.run("scontrol", "show", "job", job.id)


def test_a_failure_without_restarts_ends_with_the_workers_own_code(submit: SlurmJobs):
    job = submit("--nnodes=2", script=submit.training(failures=9))
    job.go()
    finished = job.finish()
    assert finished.returncode == 7, finished
    assert job.result["exit_code"] == 7
    assert finished.stderr.count("dlrover-run: error:") <= 1
