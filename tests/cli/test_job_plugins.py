"""`dlrover-job plugins list`: what can be submitted here, and what is wrong with the rest."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.jobs.plugins import GROUP
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import run_python
from tests.cli.test_help import loaded
from tests.harness.launcher import Finished

BROKEN = "print('while it is imported')\nimport no_such_module\n"


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which a package with a broken plugin is installed."""
    site = tmp_path / "site"
    info = site / "broken-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nmoon-rover = broken_plugin:Rover\n")
    (site / "broken_plugin.py").write_text(BROKEN)
    return {"PYTHONPATH": str(site)}


def test_the_built_in_plugins_are_shown_with_where_they_come_from(
    job: Callable[..., Finished],
) -> None:
    found = job("plugins", "list")
    assert (found.returncode, found.stderr) == (0, "")
    heading, *lines = found.stdout.splitlines()
    assert heading.split() == ["PLATFORM", "ENGINE", "PLUGIN", "PACKAGE", "IMPORT"]
    assert [line.split()[:2] for line in lines] == [
        ["local", "cmd_line"],
        ["local", "python"],
        ["local", "torch"],
    ]
    for line in lines:
        assert re.search(r" dlrover_cli\.platforms\.local\.\w+:Local\w+Plugin +dlrover-cli ", line)
        assert line.endswith(" ms")


def test_a_plugin_that_cannot_be_used_is_shown_with_its_problem(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    found = job("plugins", "list", env=broken)
    assert found.returncode == 0
    heading, *lines = found.stdout.splitlines()
    assert heading.split()[-1] == "PROBLEM"
    assert len(lines) == 4
    assert lines[-1].split()[:3] == ["-", "-", "broken_plugin:Rover"]
    assert "no_such_module" in lines[-1]


def test_the_document_is_the_only_thing_on_stdout(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    found = job("plugins", "list", "-o", "json", env=broken)
    document = json.loads(found.stdout)
    assert document["schema_version"] == 1
    *usable, unusable = document["plugins"]
    assert {(each["platform"], each["engine"]) for each in usable} == {
        ("local", "cmd_line"),
        ("local", "python"),
        ("local", "torch"),
    }
    assert all(each["error"] is None and each["import_seconds"] >= 0 for each in usable)
    assert set(unusable) == set(usable[0])
    assert unusable["entry_point"] == "moon-rover"
    assert (unusable["distribution"], unusable["version"]) == ("broken", "2.5")
    assert (unusable["platform"], unusable["engine"]) == (None, None)
    assert "no_such_module" in unusable["error"]
    assert unusable["hint"]


def test_a_terminal_of_80_columns_loses_nothing(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    env = {**broken, "COLUMNS": "80", "TERM": "xterm"}
    found = job("plugins", "list", tty=True, env=env)
    text = re.sub(r"\x1b\[[0-9;]*m|\r", "", found.stdout)
    assert max(map(len, text.splitlines())) <= 80
    assert "dlrover-cli 0." in text
    assert "no_such_module" in re.sub(r"\s", "", text)


def test_listing_plugins_does_not_load_torch() -> None:
    found = run_python("-X", "importtime", JOB_PROGRAM, "plugins", "list")
    assert found.returncode == 0
    assert loaded(found.stderr) & {"torch", "rich", "yaml"} == set()
