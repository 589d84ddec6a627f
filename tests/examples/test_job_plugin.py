"""examples/job_plugin: a package of somebody else's, installed, is found and runs jobs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import Finished

pytestmark = pytest.mark.full  # real jobs, one after the other

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_plugin"
PROGRAM = str(Path(sys.executable).parent / "dlrover-job")
MAKE = shutil.which("make")

Job = Callable[..., Finished]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the package was really installed."""
    folder = tmp_path_factory.mktemp("dlrover-make")
    source, target = folder / "source", folder / "site"
    # Building writes beside the sources.
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *offline, f"--target={target}", source],
        check=True,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user works: the example without its module, which has to come from the package."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("Makefile", "job.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    return folder


@pytest.fixture
def job(launch: Callable[..., Finished], installed: Path, folder: Path) -> Job:
    def job(*argv: str) -> Finished:
        return launch(argv, command=[PROGRAM], cwd=folder, env={"PYTHONPATH": str(installed)})

    return job


def test_the_installed_plugin_is_listed(job: Job) -> None:
    listed = job("plugins", "list", "-o", "json")
    assert listed.returncode == 0, listed
    found = {
        (each["platform"], each["engine"]): each for each in json.loads(listed.stdout)["plugins"]
    }
    mine = found["local", "make"]
    assert (mine["distribution"], mine["version"]) == ("dlrover-make", "0.1.0")
    assert mine["error"] is None


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_a_job_of_its_engine_runs(job: Job, folder: Path) -> None:
    submitted = job("submit", "--wait", "job.yaml")
    assert submitted.returncode == 0, submitted
    assert job("logs", "report").stdout == "a report on a4 about 3 numbers\n"
    assert (folder / "numbers.txt").read_text() == "1\n2\n3\n"


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_a_target_that_fails_fails_the_job_with_makes_own_code(job: Job, folder: Path) -> None:
    (folder / "Makefile").write_text("report:\n\t@exit 7\n")
    submitted = job("submit", "--wait", "job.yaml")
    assert submitted.returncode == 2, submitted
    assert "Error 7" in job("logs", "report").stdout


@pytest.mark.parametrize(
    "before, after, why",
    [
        ("jobs: 2", "jobs: 0", "job.yaml:5: jobs is 0"),
        ("jobs: 2", "jobs: true", "job.yaml:5: jobs is True"),
        ("jobs: 2", "job: 2", "job.yaml:5: the engine 'make' has no property 'job'"),
        ("target: report", "makefile: GNUmakefile", "names GNUmakefile, and "),
        ("engine: make", "engine: mako", "there is no engine 'mako'; there are plugins for: "),
    ],
)
def test_a_mistake_in_the_job_file_leaves_nothing_behind(
    job: Job, folder: Path, tmp_path: Path, before: str, after: str, why: str
) -> None:
    text = (folder / "job.yaml").read_text()
    assert before in text
    (folder / "job.yaml").write_text(text.replace(before, after))
    refused = job("submit", "job.yaml")
    assert refused.returncode == 2, refused
    assert why in refused.stderr
    assert not list(tmp_path.glob("state/dlrover/runs/*"))
