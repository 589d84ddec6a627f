"""docs/how-to/kubernetes.md: its commands and its job file are tried as they stand there."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from dlrover_cli.jobs.job_file import make_config, make_sub_graph, project_of, read_job_file
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.platforms.kubernetes.manifests import manifests
from dlrover_cli.platforms.kubernetes.plugin import KubernetesTorchPlugin
from dlrover_cli.platforms.kubernetes.request import Request
from tests.engines.kubernetes.schemas import complaints
from tests.project.documents import text

pytestmark = pytest.mark.full

PAGE = text("docs/how-to/kubernetes.md")


def test_the_dry_run_of_the_page_prints_valid_objects(tmp_path):
    [command] = [each for each in commands() if "--dry_run" in each]
    done = subprocess.run(
        [*launcher_command(), *command[1:]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    assert [each["kind"] for each in objects] == ["Job", "Pod", "Service"]
    assert [complaints(each) for each in objects] == [[], [], []]


def test_the_other_command_is_the_same_without_the_dry_run():
    first, second = commands()
    assert [word for word in first if word != "--dry_run"] == second


def test_the_job_file_of_the_page_makes_valid_objects(tmp_path: Path):
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "jobs.yaml"
    path.write_text(block)
    job_file = read_job_file(path)
    [entry] = job_file.jobs
    plugin = KubernetesTorchPlugin()
    config = make_config(entry, plugin.job_config_type())
    job = plugin.generate(make_sub_graph(entry, config), project_of(job_file))
    objects = manifests(Request.from_json(job.request), "20300131-060000-abc123")
    assert [complaints(each) for each in objects] == [[], [], []]
    assert objects[0]["metadata"]["namespace"] == "team"


def commands() -> list[list[str]]:
    """The launches of the page, as words."""
    joined = PAGE.replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^dlrover-run .*$", joined, re.MULTILINE)]
