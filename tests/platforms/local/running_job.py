"""A job of a local plugin, as a test makes it from its properties and takes it through its life."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.jobs import JobResult
from dlrover_cli.platforms.local.local_job import LocalPlugin
from dlrover_cli.platforms.local.process_handler import LocalProcessHandler
from dlrover_cli.testing.job_plugin_contract import ContractRun


@dataclass
class LocalJobs:
    """Makes jobs that all run in one project directory, each in a run directory of its own."""

    project: Path
    runs: Path
    made: list["LocalRun"] = field(default_factory=list)

    def generate(self, plugin: LocalPlugin, **properties: Any) -> "LocalRun":
        run = LocalRun(plugin, self.project, self.runs, 60.0)
        run.generate(properties)
        self.made.append(run)
        return run

    def start(self, plugin: LocalPlugin, **properties: Any) -> "LocalRun":
        run = self.generate(plugin, **properties)
        run.submit()
        return run

    def end(self, plugin: LocalPlugin, **properties: Any) -> "LocalRun":
        """Run it to its end."""
        run = self.start(plugin, **properties)
        run.wait()
        return run

    def close(self) -> None:
        for run in self.made:
            run.close()


class LocalRun(ContractRun):
    """One of them."""

    @property
    def handler(self) -> LocalProcessHandler:
        assert isinstance(self.job.job_handler, LocalProcessHandler)
        return self.job.job_handler

    @property
    def result(self) -> JobResult:
        return self.wait()

    def log(self, stream: str = "stdout", *, attempt: int = 0) -> Path:
        found = list(self.directory.glob(f"nodes/*/logs/attempt_{attempt}/0/{stream}.log"))
        assert len(found) == 1, found
        return found[0]

    @property
    def stdout(self) -> str:
        return self.log().read_text()

    @property
    def stderr(self) -> str:
        return self.log("stderr").read_text()

    def modes(self) -> Mapping[str, int]:
        """By path below the run directory: who may do what."""
        paths = sorted(self.directory.rglob("*"))
        return {
            os.path.relpath(each, self.directory): each.stat().st_mode & 0o777 for each in paths
        }
