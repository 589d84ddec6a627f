"""slurm × torch keeps the contract of all job plugins, on a real Slurm."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.platforms.slurm.plugin import SlurmTorchPlugin
from dlrover_cli.testing.job_plugin_contract import JobPluginContract
from tests.engines.slurm.engine import Slurm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def at_hand(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands of this process go to the tests' Slurm."""
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


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
