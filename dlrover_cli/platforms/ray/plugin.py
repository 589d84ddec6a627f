"""ray × torch: `dlrover-run --platform=ray` as a job that the cluster itself runs, detached.

The launcher, and with it the manager, is a process on the cluster's head; whoever submitted may go.
Its run directory is the run's own where the head shares the file system.
"""

import os
import shlex
import time
from contextlib import suppress
from typing import Any

from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.contracts.jobs import (
    AbstractJob,
    AbstractJobPlugin,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    JobContext,
    ProjectDesc,
)
from dlrover_cli.errors import ConfigError, LaunchError
from dlrover_cli.jobs.job_config import property_places
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import VARIABLE as GIVEN_RUN_VARIABLE
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.engines import TorchEngine, properties_of
from dlrover_cli.platforms.ray.connecting import LOCAL
from dlrover_cli.platforms.ray.submission import (
    RayJobHandler,
    default_address,
    submission_client,
)

_RUN_ID_VARIABLE = "DLROVER_RUN_ID"
_OWN_PROPERTIES = ("cwd", "env", "ray_address", "ray-address", "platform")
_PASSED_ON = ("DLROVER_", "PET_")
_SHUTDOWN_SECONDS = 30.0
_MARGIN_SECONDS = 15.0
"""What the launcher has for itself after its workers' shutdown timeout."""
_LOOK_SECONDS = 0.2


class RayPlatform(AbstractPlatform):
    """A Ray cluster."""

    @staticmethod
    def platform() -> str:
        return "ray"


class RayTorchConfig(BaseJobConfig):
    """Properties: the settings of `dlrover-run`, `script`, `args`, `cwd` and `env`.

    `ray_address` is where the job is submitted: the dashboard's `http://HEAD:8265`, or the address
    of the cluster; by default what Ray's own variables say, else the cluster at hand.
    """


class RayTorchJob(BaseJob):
    """The launcher's command line, and what it finds in its environment."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(job_context, job_config)
        self.argv: list[str] = []
        self.env: dict[str, str] = {}
        self.cwd = job_context.project.project_path
        self.address = ""
        self.shutdown_timeout = _SHUTDOWN_SECONDS + _MARGIN_SECONDS

    @property
    def submission_id(self) -> str:
        """Known before the job is, so that it is found even if its submitter was killed."""
        context = self.job_context
        suffix = f"-{context.occurrence}" if context.occurrence else ""
        return f"dlrover-{context.run_id}{suffix}"


class RayTorchPlugin(AbstractJobPlugin):
    """Submits, waits, stops and forgets by Ray's job submission, which needs its dashboard."""

    honours_periodic_config = True
    honours_resources = True

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> RayTorchJob:
        config = sub_graph.config
        place = property_places(config)
        given = properties_of(config)
        settings = {key: value for key, value in given.items() if key not in _OWN_PROPERTIES}
        job = RayTorchJob(JobContext(project_desc), config)
        job.env = _variables(given.get("env", {}), place("env"))
        job.cwd = os.path.abspath(os.path.join(job.cwd, str(given.get("cwd", ""))))
        job.address = _address(given, place("ray_address"))
        arguments = launch_arguments({**settings, "platform": "ray"}, place)
        job.argv = [*launcher_command(), *arguments]
        with suppress(KeyError, TypeError, ValueError):
            job.shutdown_timeout = float(settings["shutdown_timeout"]) + _MARGIN_SECONDS
        return job

    def generate_job_resource(self, job: AbstractJob) -> None:
        """The launcher makes its own directories."""

    def submit_job(self, job: AbstractJob) -> RayJobHandler:
        assert isinstance(job, RayTorchJob)
        context = job.job_context
        client = submission_client(job.address)
        client.submit_job(
            entrypoint=f"cd {shlex.quote(job.cwd)} && exec {shlex.join(job.argv)}",
            submission_id=job.submission_id,
            runtime_env={"env_vars": self.environment(job)},
            metadata={"dlrover_run": context.run_id},
        )
        return RayJobHandler(job.address, job.submission_id, context.run_directory)

    def stop_job(self, job: AbstractJob) -> None:
        """SIGTERM to the launcher, SIGKILL after its time. Raises LaunchError if it goes on."""
        assert isinstance(job, RayTorchJob)
        client = submission_client(job.address)
        if self._has_ended(client, job):
            return
        client.stop_job(job.submission_id)
        deadline = time.monotonic() + job.shutdown_timeout + _MARGIN_SECONDS
        while not self._has_ended(client, job):
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"the Ray job {job.submission_id} could not be stopped",
                    hint=f"ray job stop --address={job.address} {job.submission_id}",
                )
            time.sleep(_LOOK_SECONDS)
        if isinstance(job.job_handler, RayJobHandler):
            job.job_handler.keep_log()  # whoever waits for it may be ended before it could

    def cleanup_job(self, job: AbstractJob) -> None:
        """Let Ray forget the job; what it left in the run directory stays with the run."""
        assert isinstance(job, RayTorchJob)
        client = submission_client(job.address)
        if self._is_known(client, job):
            client.delete_job(job.submission_id)

    def job_type(self) -> type[RayTorchJob]:
        return RayTorchJob

    def job_config_type(self) -> type[RayTorchConfig]:
        return RayTorchConfig

    def platform(self) -> type[RayPlatform]:
        return RayPlatform

    def engine(self) -> type[TorchEngine]:
        return TorchEngine

    def environment(self, job: RayTorchJob) -> dict[str, str]:
        """What the launcher gets besides the head's own: our variables, and those of the job."""
        context = job.job_context
        ours = {key: text for key, text in os.environ.items() if key.startswith(_PASSED_ON)}
        return {
            **ours,
            **job.env,
            "RAY_JOB_STOP_WAIT_TIME_S": str(int(job.shutdown_timeout)),
            GIVEN_RUN_VARIABLE: GivenRun(context.run_id, context.run_directory).to_json(),
            _RUN_ID_VARIABLE: context.run_id,
        }

    def _has_ended(self, client: Any, job: RayTorchJob) -> bool:
        if not self._is_known(client, job):
            return True
        return bool(client.get_job_status(job.submission_id).is_terminal())

    def _is_known(self, client: Any, job: RayTorchJob) -> bool:
        return any(each.submission_id == job.submission_id for each in client.list_jobs())


def _address(given: dict[str, Any], place: str) -> str:
    address = given.get("ray_address", given.get("ray-address")) or default_address(os.environ)
    if address == LOCAL or not isinstance(address, str):
        raise ConfigError(
            f"{place}: ray_address takes the address of a cluster that is there, not {address!r}",
            setting="ray_address",
            hint="Write ray_address: http://HEAD:8265, or run it here with platform: local",
        )
    if given.get("platform", "ray") != "ray":
        raise ConfigError(
            f"{place}: platform in the properties is not that of the job",
            setting="platform",
            hint="Leave it out: the job has platform: ray",
        )
    return address


def _variables(env: Any, place: str) -> dict[str, str]:
    is_plain = isinstance(env, dict) and all(
        isinstance(key, str) and isinstance(each, str) for key, each in env.items()
    )
    if not is_plain:
        raise ConfigError(
            f"{place}: env takes texts by name",
            setting="env",
            hint='Write it like this: env: {NAME: "value"}',
        )
    for name in (_RUN_ID_VARIABLE, GIVEN_RUN_VARIABLE):
        if name in env:
            raise ConfigError(
                f"{place}: env cannot set {name}",
                setting="env",
                hint="Leave it out: it tells the job's processes which run they belong to.",
            )
    return dict(env)
