"""Jobs that the Ray cluster runs by itself, and their end; docs/how-to/ray.md shows the rest."""

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


def test_a_submitted_job_is_stopped_from_outside(jobs: RayJobs):
    run = submit(jobs, "long", 5000)
    jobs.wait_until(lambda: any(step.number >= 3 for step in jobs.steps()))
    stopped = jobs.job("stop", run)
    assert stopped.returncode == 0, stopped
    row = jobs.wait_for_state(run, "KILLED")
    assert (row["platform"], row["engine"], row["reason"]) == ("ray", "torch", "stopped")
    jobs.wait_until_free()
    log = jobs.run_directory() / "ray-job.log"
    assert "rank 0 of 2" in log.read_text()
    assert json.loads((jobs.run_directory() / "handler.json").read_text())["submission_id"]


def test_without_a_dashboard_one_sentence_says_what_is_missing(jobs: RayJobs, tmp_path: Path):
    jobs.training()
    path = tmp_path / "job.yaml"
    text = JOB.format(name="nowhere", directory=tmp_path, steps=1)
    path.write_text(text + "    ray_address: http://127.0.0.1:1\n")
    assert jobs.job("submit", str(path)).returncode == 0
    row = jobs.wait_for_state(jobs.run_directory().name, "FAILED")
    assert "jobs cannot be submitted to the Ray cluster at http://127.0.0.1:1" in row["reason"]
