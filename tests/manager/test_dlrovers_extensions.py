"""Extensions as DLRover's guide prints them, and with DLRover's own classes: asked as they are."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import Finished
from tests.manager.managed_job import JobStarter

pytestmark = pytest.mark.full  # real jobs, one after the other

PYPROJECT = """\
[build-system]
requires = ["setuptools>=70.1"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "3.1"

[project.entry-points."dlrover.unified.extension"]
{name} = "{value}"

[tool.setuptools]
packages = [{packages}]
py-modules = [{modules}]
"""
# As printed in the guide.
PRINTED = """\
# step1: create a user extension
# test/a.py
from dlrover.python.unified.controller.extension import ManagerExtension

class XXXExtension(ManagerExtension):
    def xxx(self):
        return "xxx"
"""
REPLACES = """\
import json
import os
from typing import List

from dlrover.python.unified.common.actor_base import NodeInfo
from dlrover.python.unified.controller.extension import ManagerExtension


class ReplacesNodes(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes: List[NodeInfo]) -> List[NodeInfo]:
        with open(os.environ["CALLS"], "a") as file:
            file.write(json.dumps([self.xxx() if hasattr(self, "xxx") else "", [
                [node.id, node.hostname, node.ip_address, node.envs] for node in nodes
            ], self.manager.run_id]) + "\\n")
        return []
"""
COMPOSED = """
import json
from dlrover_cli.contracts.manager import Deployment
from dlrover_cli.manager.extensions import compose, installed_extensions

class View:
    run_id, deployment, nodes = "the run", Deployment(), []

installed = installed_extensions()
made = compose(installed, View())
print(json.dumps({
    "names": [each.name for each in installed],
    "bases": sorted({cls.__module__ for each in installed if each.cls for cls in each.cls.__mro__}),
    "problems": made.problems,
    "replaces": made.replaces_nodes,
    "xxx": made.extension.xxx(),
    "run": made.extension.manager.run_id,
}))
"""


@pytest.fixture(scope="module")
def guides_example(
    tmp_path_factory: pytest.TempPathFactory, pip_install: Callable[[Path], Path]
) -> Path:
    source = tmp_path_factory.mktemp("guide")
    (source / "test").mkdir()
    (source / "test" / "a.py").write_text(PRINTED)
    (source / "pyproject.toml").write_text(
        PYPROJECT.format(
            name="xxx_extension", value="test.a:XXXExtension", packages='"test"', modules=""
        )
    )
    return pip_install(source)


@pytest.fixture(scope="module")
def replacing(
    tmp_path_factory: pytest.TempPathFactory, pip_install: Callable[[Path], Path]
) -> Path:
    source = tmp_path_factory.mktemp("replacing")
    (source / "my_module.py").write_text(REPLACES)
    (source / "pyproject.toml").write_text(
        PYPROJECT.format(
            name="my_extension", value="my_module:ReplacesNodes", packages="", modules='"my_module"'
        )
    )
    return pip_install(source)


def python(code: str, *site: Path) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": ":".join(map(str, site))}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, check=False, capture_output=True, text=True
    )


def test_the_guides_example_works_as_printed(guides_example: Path, replacing: Path) -> None:
    done = python(COMPOSED, guides_example, replacing)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["names"] == ["my_extension", "xxx_extension"]
    assert (found["xxx"], found["run"], found["replaces"]) == ("xxx", "the run", True)
    assert found["problems"] == []
    assert "dlrover_cli.contracts.manager" in found["bases"]


def test_it_is_listed_with_its_package(
    guides_example: Path, launch: Callable[..., Finished]
) -> None:
    program = str(Path(sys.executable).parent / "dlrover-job")
    env = {"PYTHONPATH": str(guides_example)}
    found = launch(["plugins", "list", "-o", "json"], command=[program], env=env)
    listed = json.loads(found.stdout)["extensions"]
    [mine] = [each for each in listed if each["distribution"] != "dlrover-cli"]
    assert (mine["entry_point"], mine["error"]) == ("xxx_extension", None)
    assert (mine["distribution"], mine["version"]) == ("xxx_extension", "3.1")


def test_a_job_asks_both_of_them_as_one_object(
    manage: JobStarter, guides_example: Path, replacing: Path, tmp_path: Path
) -> None:
    manage.sites = [guides_example, replacing]
    job = manage("n1 n2 n3", env={"CALLS": str(tmp_path / "calls")})
    job.wait_for_steps(attempt=0, ranks=2)
    job.order("lose_node n2")
    job.wait_for_steps(attempt=1, ranks=2)
    assert job.finish().returncode == 0
    [call] = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    node = ["n2", "n2", "127.0.0.1", {"RACK": "rack-of-n2"}]
    assert call == ["xxx", [node], job.run_directory.name]


@pytest.fixture(scope="module")
def dlrover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real package, without what it depends on."""
    site = tmp_path_factory.mktemp("dlrover")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pip += ["--no-deps", "--retries=0", "--timeout=10", f"--target={site}"]
    try:
        done = subprocess.run(
            [*pip, "dlrover==0.6.1"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("pip does not get dlrover==0.6.1 within 60 s")
    if done.returncode != 0:
        pytest.skip(f"pip cannot install dlrover==0.6.1: {done.stderr.strip()[-200:]}")
    done = python("import dlrover.python.unified.controller.extension", site)
    if done.returncode != 0:
        pytest.skip(f"dlrover cannot be imported here: {done.stderr.strip()[-200:]}")
    return site


@pytest.mark.full
def test_classes_of_the_real_dlrover_are_used_where_it_is_installed(
    dlrover: Path, guides_example: Path, replacing: Path
) -> None:
    done = python(COMPOSED, dlrover, guides_example, replacing)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "dlrover.python.unified.util.extension_util" in found["bases"]
    assert "dlrover_cli.contracts.manager" not in found["bases"]
    assert (found["xxx"], found["run"], found["replaces"]) == ("xxx", "the run", True)
    assert found["problems"] == []
