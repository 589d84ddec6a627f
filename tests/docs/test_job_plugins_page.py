"""docs/how-to/job-plugins.md: its commands do what it shows, its code is that of the examples."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.contracts import AbstractJobHandler, AbstractJobPlugin, JobContext
from dlrover_cli.jobs.plugins import GROUP
from tests.docs.console import Block, prepare, read_page, run_block
from tests.harness.launcher import Finished

pytestmark = pytest.mark.full  # real jobs, one after the other

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "job-plugins.md")
EXAMPLES = ROOT / "examples" / "job_tutorial"
PACKAGE = ROOT / "examples" / "job_plugin"
# Installs into a folder of the test, and from nowhere else than this machine.
PIP = """\
#!/bin/sh
exec {python} -m pip "$@" -q --disable-pip-version-check --no-index --no-deps \\
    --no-build-isolation --target={site}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tutorial's, with the package beside it, as among the examples."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "examples" / PACKAGE.name, ignore=ignore)
    folder = tmp_path / "examples" / EXAMPLES.name
    prepare(PAGE, EXAMPLES, folder)
    return folder


@pytest.fixture
def typing(tmp_path: Path) -> dict[str, str]:
    """An environment in which `pip` and `python` are harmless, and those of this project."""
    programs, site = tmp_path / "bin", tmp_path / "site"
    programs.mkdir()
    pip = programs / "pip"
    pip.write_text(PIP.format(python=sys.executable, site=site))
    pip.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "PYTHONPATH": str(site)}


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], folder: Path, typing: dict[str, str]
) -> None:
    problems = run_block(block, folder, launch, typing)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name, text", PAGE.files)
def test_a_file_on_the_page_is_the_example_or_a_part_of_it(name: str, text: str) -> None:
    if (EXAMPLES / name).exists():
        assert text in (EXAMPLES / name).read_text()


def test_the_table_of_calls_has_every_method() -> None:
    table = PAGE.text.partition("## What is called when")[2].partition("\n- ")[0]
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+)", table, re.MULTILINE))))
    assert told - {"wait"} == set(AbstractJobPlugin.__abstractmethods__)
    assert "wait" in told
    assert hasattr(AbstractJobHandler, "wait")


def test_what_the_page_names_is_there() -> None:
    assert f"`{GROUP}`" in PAGE.text
    context = JobContext()
    for name in re.findall(r"`job\.job_context\.(\w+)`", PAGE.text):
        assert hasattr(context, name), name
    for module, name in re.findall(r"`(dlrover_cli(?:\.\w+)+)\.(\w+)`", PAGE.text):
        assert hasattr(__import__(module, fromlist=[name]), name), f"{module}.{name}"


def test_the_whole_of_the_tutorial_is_on_the_page() -> None:
    shown = "".join(text for name, text in PAGE.files if name == "snapshot.py")
    whole = (EXAMPLES / "snapshot.py").read_text().partition("\n\n\n")[2]
    assert "".join(shown.split()) == "".join(whole.split())
