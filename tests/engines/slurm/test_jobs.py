"""`dlrover-job stop` on a real Slurm; docs/how-to/slurm.md shows the other commands."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.slurm.engine import Slurm
from tests.engines.slurm.jobs import SlurmJobs
from tests.harness.launcher import Finished, Launcher
from tests.harness.processes import descendants_and_orphans
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


def test_a_stopped_job_is_gone_from_slurm_within_ten_seconds(
    submit: SlurmJobs, dlrover_job, process_token: str
):
    submit.training()
    (submit.directory / "jobs.yaml").write_text(JOB_FILE)
    dlrover_job("submit", "jobs.yaml")
    checkpoint = submit.directory / "checkpoint"
    eventually(checkpoint.exists, 90, what="a step")
    started = time.monotonic()
    dlrover_job("stop", "train")
    assert state(dlrover_job) == "KILLED"
    eventually(
        lambda: (
            not descendants_and_orphans(process_token)
            and not submit.slurm.run("squeue", "--noheader")
        ),
        10 - (time.monotonic() - started),
        what="the end of all that ran",
        interval=0.2,
    )


def state(dlrover_job: Callable[..., Finished]) -> str:
    [run] = json.loads(dlrover_job("list", "--all", "-o", "json").stdout)["runs"]
    return str(run["state"])


def _python() -> Any:
    import sys

    return sys.executable
