"""Fixtures of the commands' tests: a private state directory, and runs in it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from tests.cli.runs import Runs
from tests.harness.launcher import Finished, Launcher, Running

JOB_PROGRAM = str(Path(sys.executable).parent / "dlrover-job")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What was run before, in the state directory that `launch` and `start` use too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Runs(tmp_path / "state" / "dlrover")


@pytest.fixture
def document(runs: Runs, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs a command in this process with `-o json`, and gives back what it prints."""

    def run(*arguments: str) -> dict[str, Any]:
        main([*arguments, "-o", "json"])
        parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return parsed

    return run


@pytest.fixture
def job(runs: Runs, launcher: Launcher) -> Callable[..., Finished]:
    """`job("list", "--all", …)`: the real program, run to its end."""

    def run(*arguments: object, **options: Any) -> Finished:
        return launcher.launch(arguments, command=[JOB_PROGRAM], **options)

    return run


@pytest.fixture
def start_job(runs: Runs, launcher: Launcher) -> Callable[..., Running]:
    """The same, left running."""

    def run(*arguments: object, **options: Any) -> Running:
        return launcher.start(arguments, command=[JOB_PROGRAM], **options)

    return run
