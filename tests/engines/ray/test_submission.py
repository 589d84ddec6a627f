"""`dlrover-job` on a Ray cluster: the job runs there by itself."""

import json
from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

JOB = """\
{name}:
  platform: ray
  engine: torch
  properties:
    script: train.py
    args: ["{directory}", "{steps}", "0.05"]
    nnodes: "2"
    nproc_per_node: "1"
"""


def submit(jobs: RayJobs, name: str, steps: int) -> str:
    jobs.training()
    path = jobs.directory / f"{name}.yaml"
    path.write_text(JOB.format(name=name, directory=jobs.directory, steps=steps))
    submitted = jobs.job("submit", str(path))
    assert submitted.returncode == 0, submitted
    return jobs.run_directory().name


def test_a_job_is_submitted_listed_read_and_cleaned_up(jobs: RayJobs):
    run = submit(jobs, "short", 5)
    row = jobs.wait_for_state(run, "FINISHED")
    assert (row["platform"], row["engine"], row["exit_code"]) == ("ray", "torch", 0)
    assert jobs.checkpoint() == 5
    shown = jobs.job("logs", run)
    assert "[rank 1] rank 1 of 2 goes on after step 0" in shown.stdout, shown
    assert jobs.result()["attempts"] == 1
    assert "rank 0 of 2" in (jobs.run_directory() / "ray-job.log").read_text()
    assert jobs.job("cleanup", run).returncode == 0
    assert not list((jobs.state / "runs").iterdir())


def test_a_submitted_job_is_stopped_from_outside(jobs: RayJobs):
    run = submit(jobs, "long", 5000)
    jobs.wait_until(lambda: any(step.number >= 3 for step in jobs.steps()))
    stopped = jobs.job("stop", run)
    assert stopped.returncode == 0, stopped
    assert jobs.wait_for_state(run, "KILLED")["reason"] == "stopped"
    jobs.wait_until_free()
    assert json.loads((jobs.run_directory() / "handler.json").read_text())["submission_id"]


def test_without_a_dashboard_one_sentence_says_what_is_missing(jobs: RayJobs, tmp_path: Path):
    jobs.training()
    path = tmp_path / "job.yaml"
    text = JOB.format(name="nowhere", directory=tmp_path, steps=1)
    path.write_text(text + "    ray_address: http://127.0.0.1:1\n")
    assert jobs.job("submit", str(path)).returncode == 0
    row = jobs.wait_for_state(jobs.run_directory().name, "FAILED")
    assert "jobs cannot be submitted to the Ray cluster at http://127.0.0.1:1" in row["reason"]
