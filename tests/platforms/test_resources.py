"""A job's `resources` reach the launcher that asks for them, on every platform that has nodes."""

import pytest

from dlrover_cli.contracts.jobs import AbstractJobPlugin, AISubGraph, BaseJobConfig, ProjectDesc
from dlrover_cli.platforms.ray.plugin import RayTorchJob, RayTorchPlugin
from dlrover_cli.platforms.slurm.plugin import SlurmJob, SlurmTorchPlugin

PLUGINS: list[type[AbstractJobPlugin]] = [RayTorchPlugin, SlurmTorchPlugin]


def arguments(plugin: type[AbstractJobPlugin], **properties: object) -> list[str]:
    """The launcher's command line for a job that takes two CPUs and a gigabyte."""
    config = BaseJobConfig(properties={"script": "train.py", **properties})
    config.resources = {"cpu": 2, "memory": "1Gi"}
    job = plugin().generate(AISubGraph(config), ProjectDesc(project_path="/project"))
    assert isinstance(job, RayTorchJob | SlurmJob)
    return job.argv if isinstance(job, RayTorchJob) else job.arguments


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_launcher_is_told_of_them(plugin: type[AbstractJobPlugin]) -> None:
    assert plugin.honours_resources
    assert "--resources=cpu=2,memory=1Gi" in arguments(plugin)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_property_of_that_name_goes_before(plugin: type[AbstractJobPlugin]) -> None:
    told = [each for each in arguments(plugin, resources="cpu=4") if "resources" in each]
    assert told == ["--resources=cpu=4"]
