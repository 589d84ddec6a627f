"""A job plugin that is whole, for tests that take something away from it."""

from typing import Any

from dlrover_cli.contracts import (
    AbstractEngine,
    AbstractJobHandler,
    AbstractJobPlugin,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    JobContext,
    ProjectDesc,
)


class Moon(AbstractPlatform):
    @staticmethod
    def platform() -> str:
        return "moon"


class Rover(AbstractEngine):
    @staticmethod
    def engine() -> str:
        return "rover"


class RoverConfig(BaseJobConfig):
    def __init__(self, wheels: int = 6, **more: Any) -> None:
        super().__init__(**more)
        self.wheels = wheels


class RoverJob(BaseJob):
    pass


class MoonRover(AbstractJobPlugin):
    """Whole; what its jobs do is nothing."""

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> BaseJob:
        return RoverJob(JobContext(project_desc), sub_graph.config)

    def generate_job_resource(self, job: BaseJob) -> None:
        pass

    def submit_job(self, job: BaseJob) -> AbstractJobHandler:
        return AbstractJobHandler()

    def stop_job(self, job: BaseJob) -> None:
        pass

    def cleanup_job(self, job: BaseJob) -> None:
        pass

    def job_type(self) -> type[BaseJob]:
        return RoverJob

    def job_config_type(self) -> type[BaseJobConfig]:
        return RoverConfig

    def platform(self) -> type[AbstractPlatform]:
        return Moon

    def engine(self) -> type[AbstractEngine]:
        return Rover
