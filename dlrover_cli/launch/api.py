"""The launcher as a library: ``elastic_launch(config, entrypoint)(*args)``."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch.distributed.launcher.api import LaunchConfig as TorchLaunchConfig

from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.compose import run_agent
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.notifying import notify_of
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.script import name_of_script
from dlrover_cli.launch.session import open_session

_log = logging.getLogger("dlrover_cli")


class elastic_launch:  # noqa: N801 - torch's name for it
    """Runs ``entrypoint``, a function or a command, under an elastic agent in this process.

    Calling it returns the workers' return values by global rank, and raises torch's
    ChildFailedError if they failed. Takes our LaunchConfig or torch's.
    """

    def __init__(
        self, config: TorchLaunchConfig, entrypoint: str | Callable[..., Any] | None
    ) -> None:
        if entrypoint is None:
            raise ValueError("elastic_launch needs an entrypoint: a function or a command")
        self._config = config if isinstance(config, LaunchConfig) else _adopt(config)
        self._entrypoint = entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        with reporting(RunReport(None, list(sys.argv), _log.warning)) as report:
            name = getattr(self._entrypoint, "__name__", None) or name_of_script(
                str(self._entrypoint)
            )
            notify = notify_of(self._config)
            session = open_session(report, os.environ, _log.warning, name, notify=notify)
            os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = self._config.signals_to_handle
            roots = (Path.cwd(),)
            try:
                advisers = Advisers(
                    self._config, roots, session.events.record, session.run_directory
                )
                try:
                    values = run_agent(
                        self._config, self._entrypoint, args, session, roots, advisers
                    )
                finally:
                    advisers.chain.close()
            except BaseException as error:
                session.close(error)
                raise
            session.close(None)
            return values


def _adopt(config: TorchLaunchConfig) -> LaunchConfig:
    return LaunchConfig(**{field.name: getattr(config, field.name) for field in fields(config)})
