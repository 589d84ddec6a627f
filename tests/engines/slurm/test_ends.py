"""Stops, kills, limits and refusals: whatever ends a job, nothing of it is left on Slurm."""

import signal
import time

import pytest

from tests.engines.slurm.engine import Slurm
from tests.engines.slurm.jobs import SlurmJob, SlurmJobs
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

AT_MOST = 10.0


def assert_nothing_is_left(job: SlurmJob, since: float | None = None) -> None:
    passed = 0.0 if since is None else time.monotonic() - since
    left = AT_MOST - passed
    eventually(job.nothing_is_left, left, what="an end of all processes", interval=0.2)


def test_ctrl_c_cancels_the_job(submit: SlurmJobs):
    job = submit("--nnodes=2")
    job.wait_for_gate()
    typed = time.monotonic()
    job.running.signal(signal.SIGINT)
    finished = job.finish()
    assert finished.returncode == 128 + signal.SIGINT, finished
    assert_nothing_is_left(job, since=typed)
    assert job.result["exit_code"] == 128 + signal.SIGINT
    assert job.result["outcome"] == "signalled"


def test_a_launcher_that_is_killed_leaves_nothing_behind(submit: SlurmJobs):
    job = submit("--nnodes=2")
    job.wait_for_gate()
    job.running.kill()
    assert_nothing_is_left(job)


def test_a_launcher_that_is_killed_while_its_job_waits_leaves_no_job(submit: SlurmJobs):
    job = submit("--nnodes=2", "--slurm_arg=hold")
    job.running.wait_for("waits: JobHeldUser")
    job.running.kill()
    assert_nothing_is_left(job)


def test_a_cancelled_job_ends_the_launcher_and_says_so(submit: SlurmJobs, slurm: Slurm):
    job = submit("--nnodes=2", "--slurm_arg=hold")
    job.running.wait_for("waits: JobHeldUser")
    slurm.run("scancel", job.id)
    finished = job.finish()
    assert finished.returncode == 143, finished
    assert job.result["reason"] == "the Slurm job was cancelled"


def test_the_time_limit_ends_the_job_in_good_order_with_85(submit: SlurmJobs, slurm: Slurm):
    job = submit("--nnodes=2", script=Scripts(submit.directory).emergency_checkpoint(0.1))
    job.running.wait_for(lambda running: len(job.scripts.facts("start")) == 2, 60)
    slurm.run("scontrol", "update", f"JobId={job.id}", "TimeLimit=1")
    finished = job.finish()
    assert finished.returncode == 85, finished
    assert "the time limit of the Slurm job is near" in job.result["reason"]
    assert len(job.scripts.facts("checkpoint")) == 2
    assert_nothing_is_left(job)


def test_slurms_own_warning_does_the_same(submit: SlurmJobs, slurm: Slurm):
    job = submit("--nnodes=2", script=Scripts(submit.directory).emergency_checkpoint(0.1))
    job.running.wait_for(lambda running: len(job.scripts.facts("start")) == 2, 60)
    slurm.run("scancel", "--batch", "--signal=USR1", job.id)
    finished = job.finish()
    assert finished.returncode == 85, finished
    assert len(job.scripts.facts("checkpoint")) == 2


def test_a_script_that_a_node_lacks_is_named_with_the_node(submit: SlurmJobs, slurm: Slurm):
    script = submit.training()
    job = submit("--nnodes=2", "--slurm_arg=hold", script=script)
    job.running.wait_for("waits: JobHeldUser")
    script.unlink()
    slurm.run("scontrol", "release", job.id)
    finished = job.finish()
    assert finished.returncode == 1, finished
    assert f"on n1, n2 the script {script} is not there" in job.result["reason"]


def test_what_sbatch_refuses_is_told(submit: SlurmJobs):
    job = submit("--nnodes=2", "--slurm_arg=partition=nowhere")
    finished = job.finish()
    assert finished.returncode == 1, finished
    assert "Slurm did not take the job: " in finished.stderr
    assert "invalid partition" in finished.stderr
