"""Inside of the user's own batch script: with srun, and as the manager of its allocation."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.engines.slurm.jobs import GATE, STEPS, SlurmJobs
from tests.harness.launcher import console_script
from tests.harness.processes import is_alive
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def sbatch(submit: SlurmJobs, launcher, *lines: str, options: tuple[str, ...] = ()) -> str:
    script = submit.directory / "mine.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    finished = launcher.launch(
        [
            *("--parsable", "--nodes=2", "--no-kill", "--requeue", "--open-mode=append"),
            *(*options, f"--output={submit.directory}/output", script),
        ],
        command=["sbatch"],
        env=submit.slurm.environ,
    )
    assert finished.returncode == 0, finished
    return finished.stdout.strip()


def output(submit: SlurmJobs) -> str:
    return (submit.directory / "output").read_text()


def test_srun_says_how_many_nodes_there_are_and_where_they_meet(submit: SlurmJobs, launcher):
    plan, script = submit.directory / "plan", submit.training()
    program = console_script("dlrover-run")
    (submit.directory / "go").touch()
    job_id = sbatch(
        *(submit, launcher),
        f"srun --ntasks-per-node=1 --output={plan}.%t {program} --dry-run --json {script}",
        f"srun --ntasks-per-node=1 {program} {script}",
    )
    submit.wait_for_end(job_id, 90)
    lines = sorted(output(submit).splitlines())
    assert lines == [f"rank {rank} of 2 took {STEPS} steps" for rank in (0, 1)]
    for task in (0, 1):
        document = json.loads(Path(f"{plan}.{task}").read_text())
        sources = {each["name"]: each["source"]["where"] for each in document["settings"]}
        assert sources["nnodes"] == "SLURM_STEP_NUM_NODES"
        assert sources["rdzv_endpoint"] == "SLURM_STEP_NODELIST"


def test_a_requeued_script_of_ones_own_goes_on_with_its_run(submit: SlurmJobs, launcher):
    command = f"{console_script('dlrover-run')} --platform=slurm --nnodes=2 {submit.training()}"
    job_id = sbatch(submit, launcher, command)
    checkpoint = submit.directory / "checkpoint"
    eventually(lambda: checkpoint.exists() and checkpoint.read_text() == str(GATE), 90)
    submit.slurm.run("scontrol", "requeue", job_id)
    (submit.directory / "go").touch()
    submit.wait_for_end(job_id, 90)
    [run] = submit.directory.glob("state/dlrover/runs/*")
    result = json.loads((run / "result.json").read_text())
    assert result["exit_code"] == 0, output(submit)
    assert result["attempts"] == 2
    assert checkpoint.read_text() == str(STEPS)
    assert _states(run)[-1] == "FINISHED"


def test_a_manager_that_is_killed_takes_its_agents_with_it(submit: SlurmJobs, launcher):
    """The allocation is the user's own, and stays."""
    command = f"{console_script('dlrover-run')} --platform=slurm --nnodes=2 {submit.training()}"
    pid = submit.directory / "pid"
    job_id = sbatch(submit, launcher, f"{command} & echo $! > {pid}; wait; exec sleep 100")
    checkpoint = submit.directory / "checkpoint"
    eventually(lambda: checkpoint.exists() and checkpoint.read_text() == str(GATE), 90)
    workers = [fact["pid"] for fact in Scripts(submit.directory).facts("start")]
    os.kill(int(pid.read_text()), signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, workers)), 10, what="the end of the workers")
    steps = ("squeue", "--steps", "--noheader", f"--jobs={job_id}", "--format=%i")
    eventually(lambda: submit.slurm.run(*steps).split() == [f"{job_id}.batch"], 10, interval=0.2)
    submit.slurm.run("scancel", job_id)


def _states(run: Path) -> list[str]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event["data"]["to"] for event in events if event["kind"] == "state"]
