"""Which jobs wait in the queues of a file, which ask its services by themselves, which may not."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.admission.submitting import ExtenderAdmittance
from dlrover_cli.contracts.jobs import BaseJobConfig
from dlrover_cli.errors import UsageError


@pytest.fixture
def admittance(tmp_path: Path) -> ExtenderAdmittance:
    path = tmp_path / "extender.yaml"
    path.write_text("extender.urlPrefix: http://127.0.0.1:8080")
    return ExtenderAdmittance.read(path)


def config(platform: str, queue: str | None = None, **properties: Any) -> BaseJobConfig:
    made = BaseJobConfig(platform, "torch", "train", properties=properties)
    made.queue = queue
    made.resources = {"cpu": 2, "memory": "1Gi"}
    return made


def test_a_job_on_this_machine_waits_at_the_gate(admittance: ExtenderAdmittance) -> None:
    job = config("local")

    assert admittance.admit(job, "jobs.yaml:1")
    assert job.properties == {}


@pytest.mark.parametrize(
    "job",
    [
        config("ray"),
        config("slurm", slurm_arg=["partition=gpu", "nodelist=n[1-4]"]),
        config("slurm", **{"slurm-arg": "w=n1"}),
    ],
    ids=["ray", "slurm with nodes", "slurm with nodes in short"],
)
def test_elsewhere_the_launcher_of_a_job_gets_the_file(
    admittance: ExtenderAdmittance, job: BaseJobConfig
) -> None:
    assert not admittance.admit(job, "jobs.yaml:1")
    assert job.properties["extender"] == admittance.file


@pytest.mark.parametrize(
    "job, complaint, hint",
    [
        (config("slurm"), "'slurm' places them by itself", "nodelist="),
        (config("slurm", slurm_arg=["partition=nodelist"]), "places them by itself", "nodelist="),
        (config("kubernetes"), "'kubernetes' places them by itself", "as Volcano does"),
        (config("ray", queue="gold"), "'ray' waits in none", "leave queue out"),
        (config("ray", extender_url="http://b"), "both name a service", "keep one"),
        (config("local", queue="gold"), "there is no queue 'gold'", "its queues"),
    ],
)
def test_what_would_mean_nothing_is_refused(
    admittance: ExtenderAdmittance, job: BaseJobConfig, complaint: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        admittance.admit(job, "jobs.yaml:1")
    assert refused.value.message.startswith("jobs.yaml:1: ")
    assert complaint in refused.value.message
    assert hint in (refused.value.hint or "")
