"""local × torch: this project's launcher, with every setting of `dlrover-run` as a property."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.contracts.jobs import AbstractEngine, AbstractJob, BaseJobConfig
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import VARIABLE as GIVEN_RUN_VARIABLE
from dlrover_cli.platforms.local.local_job import (
    SHUTDOWN_TIMEOUT,
    LocalJob,
    LocalPlugin,
    opened_log,
)
from dlrover_cli.platforms.local.properties import Properties

_OWN_PROPERTIES = frozenset({"cwd", "env"})
_MARGIN = 15.0
"""Seconds that the launcher has for itself after its workers' shutdown timeout."""


class TorchEngine(AbstractEngine):
    """A PyTorch script, run by the launcher of this project."""

    @staticmethod
    def engine() -> str:
        return "torch"


class LocalTorchConfig(BaseJobConfig):
    """Properties: the settings of `dlrover-run`, `script`, `args`, `cwd` and `env`."""


class LocalTorchPlugin(LocalPlugin):
    """`dlrover-run` in the run's own directory: its logs, events and result are the run's.

    The output of every rank is kept in files, unless the job says something about it. What the
    launcher itself says is in the runner's log.
    """

    is_told_alone = True

    def fill_in(self, job: LocalJob, given: Properties) -> None:
        settings = {
            name: value for name, value in given.values.items() if name not in _OWN_PROPERTIES
        }
        if not {"redirects", "tee"} & settings.keys():
            settings["redirects"] = "3"
        job.argv = [*launcher_command(), *launch_arguments(settings, given.place)]
        job.shutdown_timeout = _MARGIN + _shutdown_timeout(settings, given.texts_by_name("env"))

    def generate_job_resource(self, job: AbstractJob) -> None:
        """The launcher makes its own directories."""

    def environment(self, job: LocalJob) -> dict[str, str]:
        context = job.job_context
        given_run = {"run_id": context.run_id, "run_directory": context.run_directory}
        return super().environment(job) | {GIVEN_RUN_VARIABLE: json.dumps(given_run)}

    @contextmanager
    def output(self, job: LocalJob) -> Iterator[tuple[int, int]]:
        with opened_log(job.run_directory / "runner.log") as log:
            yield log, log

    def job_config_type(self) -> type[LocalTorchConfig]:
        return LocalTorchConfig

    def engine(self) -> type[TorchEngine]:
        return TorchEngine


def _shutdown_timeout(settings: Mapping[str, Any], env: Mapping[str, str]) -> float:
    """What the launcher will go by: the setting, or the variable that torch has for it."""
    variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    for value in (settings.get("shutdown_timeout"), env.get(variable), os.environ.get(variable)):
        with suppress(TypeError, ValueError):
            return max(0.0, float(value))  # type: ignore[arg-type]
    return SHUTDOWN_TIMEOUT
