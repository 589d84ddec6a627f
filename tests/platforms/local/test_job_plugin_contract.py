"""The three built-in plugins keep the contract that is there for everybody's."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.platforms.local.command_engine import LocalCommandPlugin
from dlrover_cli.platforms.local.python_engine import LocalPythonPlugin
from dlrover_cli.platforms.local.torch_engine import LocalTorchPlugin
from dlrover_cli.testing.job_plugin_contract import JobPluginContract

ENDLESS = "import signal\nwhile True: signal.pause()\n"


class TestCommands(JobPluginContract):
    plugin_type = LocalCommandPlugin

    @pytest.fixture
    def good_properties(self) -> Mapping[str, Any]:
        return {"command": ["true"]}

    @pytest.fixture
    def endless_properties(self) -> Mapping[str, Any]:
        return {"command": [sys.executable, "-c", ENDLESS]}

    @pytest.fixture
    def bad_properties(self) -> Mapping[str, Any]:
        return {"command": "exit 3", "shell": True}


class _WithScript(JobPluginContract):
    @pytest.fixture
    def good_properties(self, project: Path) -> Mapping[str, Any]:
        return self.script(project, "print('hello')")

    @pytest.fixture
    def endless_properties(self, project: Path) -> Mapping[str, Any]:
        return self.script(project, ENDLESS)

    @pytest.fixture
    def bad_properties(self, project: Path) -> Mapping[str, Any]:
        return self.script(project, "raise SystemExit(3)")

    def script(self, project: Path, code: str) -> Mapping[str, Any]:
        (project / "job.py").write_text(code)
        return {"script": "job.py"}


class TestPython(_WithScript):
    plugin_type = LocalPythonPlugin


@pytest.mark.full  # each of them imports torch
class TestTorch(_WithScript):
    plugin_type = LocalTorchPlugin

    def script(self, project: Path, code: str) -> Mapping[str, Any]:
        # The scripts do without torch, which takes its time to load.
        return {**super().script(project, code), "nproc_per_node": 2, "worker_start": "fresh"}
