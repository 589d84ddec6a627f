"""The contract for job plugins catches those that do not keep it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.jobs import (
    AbstractEngine,
    AbstractJob,
    AbstractJobHandler,
    AbstractJobPlugin,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    JobContext,
    JobResult,
    ProjectDesc,
)
from dlrover_cli.contracts.jsonable import NotJsonable
from dlrover_cli.testing.job_plugin_contract import ContractRun, JobPluginContract

PROPERTIES: Mapping[str, Any] = {}


class Nowhere(AbstractPlatform):
    @staticmethod
    def platform() -> str:
        return "nowhere"


class Nothing(AbstractEngine):
    @staticmethod
    def engine() -> str:
        return "nothing"


class Good(AbstractJobPlugin):
    """Keeps it: its jobs are over when they begin."""

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> BaseJob:
        return BaseJob(JobContext(project_desc), sub_graph.config)

    def generate_job_resource(self, job: AbstractJob) -> None:
        pass

    def submit_job(self, job: AbstractJob) -> AbstractJobHandler:
        return AbstractJobHandler()

    def stop_job(self, job: AbstractJob) -> None:
        pass

    def cleanup_job(self, job: AbstractJob) -> None:
        pass

    def job_type(self) -> type[BaseJob]:
        return BaseJob

    def job_config_type(self) -> type[BaseJobConfig]:
        return BaseJobConfig

    def platform(self) -> type[Nowhere]:
        return Nowhere

    def engine(self) -> type[Nothing]:
        return Nothing


class CreatesTooEarly(Good):
    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> BaseJob:
        Path(project_desc.project_path, "early").touch()
        return super().generate(sub_graph, project_desc)


class KeepsAFile(Good):
    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> BaseJob:
        job = super().generate(sub_graph, project_desc)
        job.properties["file"] = Path("here")
        return job


class NeverEnds(Good):
    class Handler(AbstractJobHandler):
        def wait(self, timeout: float | None = None) -> JobResult | None:
            return None

    def submit_job(self, job: AbstractJob) -> AbstractJobHandler:
        return self.Handler()


class CleansUpOnce(Good):
    def cleanup_job(self, job: AbstractJob) -> None:
        path = job.run_directory / "cleaned"
        path.touch(exist_ok=False)


class TestThoseThatDoNot:
    @pytest.fixture
    def contract(self) -> JobPluginContract:
        return JobPluginContract()

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        directory = tmp_path / "project"
        directory.mkdir()
        return directory

    def run_of(self, plugin: AbstractJobPlugin, project: Path) -> ContractRun:
        return ContractRun(plugin, project, project.parent / "runs", patience=0.1)

    def test_generate_that_creates_something(
        self, contract: JobPluginContract, project: Path
    ) -> None:
        with pytest.raises(AssertionError, match="early"):
            contract.test_generate_starts_and_creates_nothing(
                self.run_of(CreatesTooEarly(), project), PROPERTIES
            )

    def test_a_job_that_is_no_data(self, contract: JobPluginContract, project: Path) -> None:
        with pytest.raises(NotJsonable, match="PosixPath"):
            contract.test_another_process_can_read_the_job(
                self.run_of(KeepsAFile(), project), PROPERTIES
            )

    def test_a_job_that_does_not_end(self, contract: JobPluginContract, project: Path) -> None:
        with pytest.raises(pytest.fail.Exception, match="has not ended after"):
            contract.test_a_job_that_is_submitted_ends_well(
                self.run_of(NeverEnds(), project), PROPERTIES
            )

    def test_a_job_that_goes_on_after_it_was_stopped(
        self, contract: JobPluginContract, project: Path
    ) -> None:
        with pytest.raises(AssertionError):
            contract.test_a_job_that_is_stopped_has_ended_when_stop_returns(
                self.run_of(NeverEnds(), project), PROPERTIES
            )

    def test_cleaning_up_that_works_only_once(
        self, contract: JobPluginContract, project: Path
    ) -> None:
        with pytest.raises(FileExistsError):
            contract.test_cleaning_up_twice_is_no_error(
                self.run_of(CleansUpOnce(), project), PROPERTIES
            )
