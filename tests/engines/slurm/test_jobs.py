"""`dlrover-job` on a real Slurm: submit, list, logs, stop and clean up."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.slurm.engine import Slurm
from tests.engines.slurm.jobs import STEPS, SlurmJobs
from tests.harness.launcher import Finished, Launcher
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

JOB_FILE = """\
train:
  platform: slurm
  engine: torch
  properties:
    script: training.py
    nnodes: 2
    rdzv_conf: last_call_timeout=1
    slurm_arg: [partition=main]
"""


@pytest.fixture
def dlrover_job(launcher: Launcher, slurm: Slurm) -> Callable[..., Finished]:
    def run(*arguments: str) -> Finished:
        command = [str(Path(_python()).parent / "dlrover-job")]
        finished = launcher.launch(arguments, command=command, env=slurm.environ)
        assert finished.returncode == 0, finished
        return finished

    return run


def test_a_submitted_job_runs_on_slurm_and_is_seen_from_here(submit: SlurmJobs, dlrover_job):
    submit.training()
    (submit.directory / "go").touch()
    (submit.directory / "jobs.yaml").write_text(JOB_FILE)
    dlrover_job("submit", "jobs.yaml")
    eventually(lambda: state(dlrover_job) == "FINISHED", 90, interval=0.5, what="FINISHED")
    logs = dlrover_job("logs", "train").stdout
    for rank in (0, 1):
        assert f"rank {rank} of 2 took {STEPS} steps" in logs
    [run] = submit.directory.glob("state/dlrover/runs/*")
    assert json.loads((run / "result.json").read_text())["exit_code"] == 0
    dlrover_job("cleanup", "train")
    assert not run.exists()


def test_a_stopped_job_is_gone_from_slurm(submit: SlurmJobs, dlrover_job, process_token: str):
    submit.training()
    (submit.directory / "jobs.yaml").write_text(JOB_FILE)
    dlrover_job("submit", "jobs.yaml")
    checkpoint = submit.directory / "checkpoint"
    eventually(checkpoint.exists, 90, what="a step")
    started = time.monotonic()
    dlrover_job("stop", "train")
    assert state(dlrover_job) == "KILLED"
    assert submit.slurm.run("squeue", "--noheader", "--states=RUNNING,PENDING") == ""
    assert time.monotonic() - started < 45


def state(dlrover_job: Callable[..., Finished]) -> str:
    [run] = json.loads(dlrover_job("list", "--all", "-o", "json").stdout)["runs"]
    return str(run["state"])


def _python() -> Any:
    import sys

    return sys.executable
