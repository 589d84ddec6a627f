"""The state of a job on a real Slurm: by every way the same, and from its accounts at last."""

import os
import time
from pathlib import Path

import pytest

from dlrover_cli.platforms.slurm.commands import NoSuchJob, Slurm, SlurmError, find_job
from dlrover_cli.platforms.slurm.facts import JobFacts
from dlrover_cli.platforms.slurm.plugin import SlurmHandler
from tests.engines.slurm import engine
from tests.harness.engines import absent
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

WAYS = ("squeue --json", "scontrol", "squeue")
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")


def asking(slurm: engine.Slurm, **more: str) -> Slurm:
    return Slurm({**os.environ, **slurm.environ, **more})


def by_each_way(slurm: engine.Slurm, job_id: str) -> list[JobFacts]:
    found = []
    for way in WAYS:
        only = asking(slurm)
        only._ways.useless.update(set(WAYS) - {way})
        found.append(only.job(job_id))
    return found


def sbatch(slurm: engine.Slurm, command: str, *options: str) -> str:
    printed = slurm.run(
        *("sbatch", "--parsable", "--nodes=2", "--output=/dev/null", "--chdir=/"),
        *(*options, f"--wrap={command}"),
    )
    return printed.strip()


def test_every_command_tells_the_same_of_a_job(slurm: engine.Slurm):
    job_id = sbatch(slurm, 'kill -9 "$$"', "--hold", "--time=5")
    held, *others = by_each_way(slurm, job_id)
    assert (held.state, held.reason, held.is_waiting) == ("PENDING", "JobHeldUser", True)
    assert others == [held, held]
    slurm.run("scontrol", "release", job_id)
    eventually(lambda: asking(slurm).job(job_id).is_over, 30, interval=0.2)
    killed, *others = by_each_way(slurm, job_id)
    assert (killed.exit_code, killed.node_list) == (128 + 9, "n[1-2]")
    assert others == [killed, killed]
    with pytest.raises(NoSuchJob):
        asking(slurm).job("999999")


def test_the_time_that_is_left_and_a_restart_are_in_json_too(slurm: engine.Slurm):
    job_id = sbatch(slurm, "exec sleep 60", "--time=5", "--requeue")
    eventually(lambda: asking(slurm).job(job_id).state == "RUNNING", 30, interval=0.2)
    running, *others = by_each_way(slurm, job_id)
    assert others == [running, running]
    left = running.seconds_left(time.time())
    assert left is not None
    assert 200 < left <= 300
    slurm.run("scontrol", "requeue", job_id)
    assert asking(slurm).job(job_id).restarts == 1
    slurm.run("scancel", job_id)


def test_a_slurm_without_the_plugin_for_json_answers_all_the_same(
    slurm: engine.Slurm, tmp_path: Path
):
    if not PLUGINS.is_dir():
        absent(f"there is no {PLUGINS}, where Debian has Slurm's plugins")
    (tmp_path / "plugins").mkdir()
    for plugin in PLUGINS.glob("*.so"):
        if not plugin.name.startswith("serializer_json"):
            (tmp_path / "plugins" / plugin.name).symlink_to(plugin)
    config = tmp_path / "slurm.conf"
    config.write_text(f"PluginDir={tmp_path}/plugins\n{slurm.config.read_text()}")
    job_id = sbatch(slurm, "exit 3", "--hold")
    less = asking(slurm, SLURM_CONF=str(config))
    with pytest.raises(SlurmError, match="Unable to find plugin: serializer/json"):
        less.run("squeue", "--json")
    assert less.job(job_id) == asking(slurm).job(job_id)


def test_the_accounts_say_how_a_job_ended_that_the_controller_has_forgotten(
    slurm: engine.Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    if not slurm.keeps_accounts:
        absent("Slurm's accounting is not installed: slurmdbd, its MySQL plugin and MariaDB")
    failed = sbatch(slurm, "exit 3")
    cancelled = sbatch(slurm, "exec sleep 60")
    look = asking(slurm)
    eventually(lambda: look.job(cancelled).state == "RUNNING", 30, interval=0.2)
    slurm.run("scancel", cancelled)
    eventually(lambda: look.job(failed).is_over and look.job(cancelled).is_over, 30, interval=0.2)
    eventually(lambda: look.ended(cancelled) == JobFacts("CANCELLED"), 20, what="an account of it")
    slurm.forget_jobs()
    with pytest.raises(NoSuchJob):
        look.job(failed)
    assert find_job(look, failed) == JobFacts("FAILED", exit_code=3)
    # What a submitted job's waiter makes of it, without a result of the job's own.
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    result = SlurmHandler(failed, str(tmp_path)).wait(20)
    assert (result.exit_code, result.reason) == (3, "the Slurm job ended as FAILED")
