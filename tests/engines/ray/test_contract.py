"""ray × torch keeps the contract of all job plugins, on a real cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.platforms.ray.plugin import RayTorchPlugin
from dlrover_cli.testing.job_plugin_contract import JobPluginContract
from tests.engines.ray.engine import RayEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def at_hand(
    ray_engine: RayEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """This process is where the cluster is, and submits to it."""
    ray_engine.ensure()
    for name, value in ray_engine.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ray_engine.dashboard)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ray_engine.entered():
        yield


@pytest.mark.usefixtures("at_hand")
class TestRayTorchPlugin(JobPluginContract):
    plugin_type = RayTorchPlugin

    @pytest.fixture
    def good_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "/bin/true", "no_python": True}

    @pytest.fixture
    def bad_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "nothing.py"}

    @pytest.fixture
    def endless_properties(self, project: Path) -> dict[str, Any]:
        return {"script": "/bin/sleep", "args": ["120"], "no_python": True}
