"""local × torch: this project's launcher, with every setting of `dlrover-run` as a property."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.contracts.jobs import AbstractJob, BaseJobConfig
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import VARIABLE as GIVEN_RUN_VARIABLE
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.engines import TorchEngine
from dlrover_cli.platforms.local.local_job import (
    SHUTDOWN_TIMEOUT,
    LocalJob,
    LocalPlugin,
    opened_log,
)
from dlrover_cli.platforms.local.properties import Properties

_OWN_PROPERTIES = frozenset({"cwd", "env"})
_OF_INTEREST = ("redirects", "tee", "shutdown_timeout")
_TIMEOUT_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_MARGIN = 15.0
"""Seconds that the launcher has for itself after its workers' shutdown timeout."""


class LocalTorchConfig(BaseJobConfig):
    """Properties: the settings of `dlrover-run`, `script`, `args`, `cwd` and `env`."""


class LocalTorchPlugin(LocalPlugin):
    """`dlrover-run` in the run's own directory: its logs, events and result are the run's.

    The output of every rank is kept in files, unless the job or a config file says something about
    it. What the launcher itself says is in the runner's log.
    """

    is_told_alone = True
    margin = 5.0  # less than a runner has, which is killed if it does not react

    def fill_in(self, job: LocalJob, given: Properties) -> None:
        properties = {
            name: value for name, value in given.values.items() if name not in _OWN_PROPERTIES
        }
        launch_arguments(properties, given.place)  # complains; what follows need not
        sources = _resolved(job, given).sources
        if all(sources[name].kind is SourceKind.DEFAULT for name in ("redirects", "tee")):
            properties["redirects"] = "3"
        job.argv = [*launcher_command(), *launch_arguments(properties, given.place)]

    def shutdown_timeout(self, job: LocalJob, given: Properties) -> float:
        """More than the launcher will give its workers."""
        seconds = _resolved(job, given).shutdown_timeout
        if seconds is None:
            environ = {**os.environ, **given.texts_by_name("env")}
            with suppress(ValueError):
                seconds = int(environ.get(_TIMEOUT_VARIABLE, ""))
        return _MARGIN + (SHUTDOWN_TIMEOUT if seconds is None else max(0, seconds))

    def generate_job_resource(self, job: AbstractJob) -> None:
        """The launcher makes its own directories."""

    def environment(self, job: LocalJob) -> dict[str, str]:
        context = job.job_context
        given = GivenRun(context.run_id, context.run_directory)
        return super().environment(job) | {GIVEN_RUN_VARIABLE: given.to_json()}

    @contextmanager
    def output(self, job: LocalJob) -> Iterator[tuple[int, int]]:
        with opened_log(job.run_directory / "runner.log") as log:
            yield log, log

    def job_config_type(self) -> type[LocalTorchConfig]:
        return LocalTorchConfig

    def engine(self) -> type[TorchEngine]:
        return TorchEngine


def _resolved(job: LocalJob, given: Properties) -> LaunchSettings:
    """What the launcher will go by, where the job, the environment or a config file has a say."""
    said = {name.replace("-", "_"): value for name, value in given.values.items()}
    flags: dict[str, object] = {"training_script": ""}
    flags |= {name: said[name] for name in _OF_INTEREST if name in said}
    environ = {**os.environ, **given.texts_by_name("env")}
    directory = Path(job.cwd, given.text("cwd", "."))
    return resolve_settings(flags, environ, directory)
