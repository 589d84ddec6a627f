"""kubernetes × torch as a job plugin: the contract of all plugins, job files, and CronJobs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.jobs import AISubGraph, PeriodicConfig, ProjectDesc
from dlrover_cli.platforms.kubernetes.plugin import KubernetesTorchConfig, KubernetesTorchPlugin
from dlrover_cli.testing.job_plugin_contract import JobPluginContract
from tests.engines.kubernetes.api_server import ApiServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full


def behave(server: ApiServer, pod: dict[str, Any]) -> None:
    """What becomes of a pod is what its image is called."""
    image = pod["spec"]["containers"][0]["image"]
    server.run(pod)
    server.print(pod, "dlrover-run: here", f"[rank 0]:this is {image}")
    if image == "good":
        server.end(pod, 0)
    elif image == "bad":
        server.end(pod, 3, "ValueError: bad")


@pytest.fixture
def acting(cluster: ApiServer) -> ApiServer:
    cluster.behaviour = behave
    return cluster


@pytest.mark.usefixtures("acting")
class TestKubernetesTorchPlugin(JobPluginContract):
    plugin_type = KubernetesTorchPlugin

    @pytest.fixture
    def good_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "train.py", "k8s_image": "good"}

    @pytest.fixture
    def bad_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "train.py", "k8s_image": "bad"}

    @pytest.fixture
    def endless_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "train.py", "k8s_image": "endless"}


def generated(tmp_path: Path, periodic: PeriodicConfig | None = None, **properties: Any) -> Any:
    given = {"script": "train.py", "k8s_image": "good", **properties}
    config = KubernetesTorchConfig("kubernetes", "torch", "nightly", periodic, properties=given)
    config.resources = {"cpu": 2, "nvidia.com/gpu": 1}
    plugin = KubernetesTorchPlugin()
    return plugin, plugin.generate(AISubGraph(config), ProjectDesc("p", str(tmp_path)))


def test_what_a_job_file_says_is_in_the_request(tmp_path):
    _, job = generated(tmp_path, nnodes=2, env={"A": "1"}, args=["--x"], **{"max-restarts": 1})
    assert job.request["resources"] == {"cpu": "2", "nvidia.com/gpu": "1"}
    assert (job.request["least"], job.request["most"]) == (2, 2)
    assert job.request["env"] == {"A": "1"}
    assert job.request["command"] == ["train.py", "--x"]
    assert "--max-restarts=1" in job.request["options"]
    assert job.request["stem"] == "nightly"


def test_a_periodic_job_is_a_cron_job_until_it_is_stopped(acting, tmp_path):
    plugin, job = generated(tmp_path, PeriodicConfig(interval="1h"))
    job.job_context.run_id = "20300131-060000-abc123"
    job.job_context.run_directory = str(tmp_path)
    handler = plugin.submit_job(job)
    job.job_handler = handler
    [cron] = acting.of_kind("cronjobs")
    assert cron["spec"]["schedule"] == "0 * * * *"
    assert len(acting.of_kind("deployments")) == 1
    assert handler.wait(0.5) is None
    plugin.stop_job(job)
    assert acting.objects == {}
    assert handler.wait(0).exit_code == 143
    plugin.cleanup_job(job)


def test_jobs_are_submitted_listed_logged_and_cleaned_up(acting, tmp_path):
    commands = Commands(tmp_path)
    (tmp_path / "jobs.yaml").write_text(
        "train:\n  platform: kubernetes\n  engine: torch\n"
        "  properties: {script: train.py, k8s_image: good}\n"
    )
    commands.run("submit", "jobs.yaml")
    row = commands.ended()
    assert row["state"] == "FINISHED", row
    assert row["platform"] == "kubernetes"
    assert "this is good" in commands.run("logs", row["run_id"])
    assert acting.objects == {}


def test_a_job_that_fails_is_listed_with_its_code(acting, tmp_path):
    commands = Commands(tmp_path)
    (tmp_path / "jobs.yaml").write_text(
        "train:\n  platform: kubernetes\n  engine: torch\n"
        "  properties: {script: train.py, k8s_image: bad}\n"
    )
    commands.run("submit", "jobs.yaml")
    row = commands.ended()
    assert (row["state"], row["exit_code"]) == ("FAILED", 3), row
    assert "ValueError: bad" in row["reason"]


@pytest.mark.parametrize("periodic", ["", "  periodic_config: {cron: 0 0 1 1 *}\n"])
def test_a_job_is_stopped_and_nothing_is_left(periodic, acting, tmp_path):
    commands = Commands(tmp_path)
    (tmp_path / "jobs.yaml").write_text(
        "train:\n  platform: kubernetes\n  engine: torch\n"
        f"{periodic}  properties: {{script: train.py, k8s_image: endless}}\n"
    )
    commands.run("submit", "jobs.yaml")
    kind = "cronjobs" if periodic else "jobs"
    eventually(lambda: acting.of_kind(kind), 40, what="the job is there")
    eventually(lambda: commands.rows()[0]["state"] == "RUNNING", 40, what="it runs")
    [row] = commands.rows()
    commands.run("stop", row["run_id"])
    assert commands.rows()[0]["state"] == "KILLED"
    assert acting.objects == {}


class Commands:
    """`dlrover-job`, with a state directory of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._env = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}

    def run(self, *arguments: str) -> str:
        program = "from dlrover_cli.cli.job import console; console()"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=self._env,
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self) -> list[dict[str, Any]]:
        listed = json.loads(self.run("list", "-o", "json"))
        return listed if isinstance(listed, list) else listed["runs"]

    def ended(self) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            [row] = self.rows()
            return row if row["state"] in ("FINISHED", "FAILED", "KILLED", "LOST") else None

        return eventually(over, 60, what="the run ends", interval=0.5)
