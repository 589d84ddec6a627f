"""slurm × torch keeps the contract of all job plugins, on a real Slurm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.platforms.slurm.plugin import SlurmTorchPlugin
from dlrover_cli.testing.job_plugin_contract import JobPluginContract
from tests.engines.slurm.engine import Slurm
from tests.harness.processes import TOKEN_VARIABLE

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def at_hand(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process_token: str
) -> Iterator[None]:
    """The commands of this process go to the tests' Slurm."""
    mine = {"XDG_STATE_HOME": str(tmp_path / "state"), TOKEN_VARIABLE: process_token}
    for name, value in {**slurm.environ, **mine}.items():
        monkeypatch.setenv(name, value)
    yield


@pytest.mark.usefixtures("at_hand")
class TestSlurmTorchPlugin(JobPluginContract):
    plugin_type = SlurmTorchPlugin

    @pytest.fixture
    def good_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "/bin/true", "no_python": True}

    @pytest.fixture
    def bad_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "/bin/false", "no_python": True}

    @pytest.fixture
    def endless_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "/bin/sleep", "args": ["120"], "no_python": True}
