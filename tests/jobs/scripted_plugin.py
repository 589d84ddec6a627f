"""A job plugin that does what its job's properties say, and writes down every call.

It is copied into a test's project, where runners load it as anybody's own. ``does`` maps a method
to an action: ``raise``, ``exit``, ``wrong`` (to return what nobody expects), or ``meet``: say that
it was reached, and go on when the test says so. A job lasts until a file ``end`` is there.
"""

import os
import signal
import sys
import time
from pathlib import Path

from dlrover_cli.contracts import (
    AbstractEngine,
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


class Theatre(AbstractPlatform):
    @staticmethod
    def platform() -> str:
        return "theatre"


class Play(AbstractEngine):
    @staticmethod
    def engine() -> str:
        return "play"


class PlayJob(BaseJob):
    pass


class PlayHandler(AbstractJobHandler):
    def __init__(self, project: str, does: dict[str, str]) -> None:
        super().__init__()
        self.project = project
        self.does = does
        if does.get("handler") == "no_json":
            self.file = sys.stdout

    def wait(self, timeout: float | None = None) -> JobResult | None:
        action = self.does.get("wait")
        if action == "looks":  # and says that it still runs, though nobody gave it a time
            return None if is_new(self.project, "looked") else JobResult(0)
        if action == "deaf":
            return self._without_listening()
        if action == "stuck":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            act(self.project, "wait", "meet")
        if action == "until_end":
            note(self.project, "wait")
            wait_for(Path(self.project, "end"))
            return JobResult(int(Path(self.project, "end").read_text() or 0))
        if act(self.project, "wait", action) == "wrong":
            return 0  # type: ignore[return-value]
        return JobResult(0)

    def _without_listening(self) -> JobResult | None:
        try:
            act(self.project, "wait", "meet")
        except BaseException:  # noqa: BLE001 - what a careless author writes
            return None
        return JobResult(0)


class PlayPlugin(AbstractJobPlugin):
    honours_periodic_config = True

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> BaseJob:
        does = sub_graph.config.properties.get("does", {})
        if act(project_desc.project_path, "generate", does.get("generate")) == "wrong":
            return BaseJob(JobContext(project_desc), sub_graph.config)
        return PlayJob(JobContext(project_desc), sub_graph.config)

    def generate_job_resource(self, job: BaseJob) -> None:
        self._act(job, "generate_job_resource")

    def submit_job(self, job: BaseJob) -> AbstractJobHandler:
        if self._act(job, "submit_job") == "wrong":
            return 7  # type: ignore[return-value]
        return PlayHandler(_project(job), job.job_config.properties.get("does", {}))

    def stop_job(self, job: BaseJob) -> None:
        note(_project(job), f"grace {job.job_context.stop_grace}")
        self._act(job, "stop_job")

    def cleanup_job(self, job: BaseJob) -> None:
        self._act(job, "cleanup_job")

    def job_type(self) -> type[BaseJob]:
        return PlayJob

    def job_config_type(self) -> type[BaseJobConfig]:
        return BaseJobConfig

    def platform(self) -> type[AbstractPlatform]:
        return Theatre

    def engine(self) -> type[AbstractEngine]:
        return Play

    def _act(self, job: BaseJob, method: str) -> str | None:
        does = job.job_config.properties.get("does", {})
        return act(_project(job), method, does.get(method))


def act(project: str, method: str, action: str | None) -> str | None:
    note(project, method)
    match action:
        case "raise":
            raise RuntimeError(f"no {method} today")
        case "raise_once" if is_new(project, f"{method}.raised"):
            raise RuntimeError(f"no {method} today")
        case "exit":
            sys.exit(7)
        case "meet":
            Path(project, f"{method}.reached").touch()
            wait_for(Path(project, f"{method}.go"))
    return action


def note(project: str, line: str) -> None:
    """One line in the list of calls, in one piece."""
    fd = os.open(Path(project, "calls"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def is_new(project: str, name: str) -> bool:
    try:
        Path(project, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _project(job: BaseJob) -> str:
    return job.job_context.project.project_path
