"""local × python: a script or a module, run by a Python interpreter."""

import sys

from dlrover_cli.contracts.jobs import AbstractEngine, BaseJobConfig
from dlrover_cli.platforms.local.local_job import (
    COMMON_PROPERTIES,
    LocalJob,
    LocalPlugin,
)
from dlrover_cli.platforms.local.properties import Properties


class PythonEngine(AbstractEngine):
    """A Python program."""

    @staticmethod
    def engine() -> str:
        return "python"


class LocalPythonConfig(BaseJobConfig):
    """Properties: `script` or `module`, `args`, `python`, and those of every local job."""


class LocalPythonPlugin(LocalPlugin):
    """`script: prepare.py`, or `module: tools.prepare`; `python` is by default this interpreter."""

    def fill_in(self, job: LocalJob, given: Properties) -> None:
        given.refuse_others("script", "module", "args", "python", *COMMON_PROPERTIES)
        if "script" in given and "module" in given:
            raise given.wrong("module", "cannot stand beside script", "Take one of them out.")
        if "module" in given:
            program = ["-m", given.text("module")]
        elif "script" in given:
            program = [given.text("script")]
        else:
            hint = "Write it like this: script: prepare.py; or name a module."
            raise given.wrong("script", "is missing, and so is module", hint)
        job.argv = [given.text("python", sys.executable), *program, *given.texts("args")]
        # Whoever follows the log wants to see a line when it is printed.
        job.env["PYTHONUNBUFFERED"] = "1"

    def job_config_type(self) -> type[LocalPythonConfig]:
        return LocalPythonConfig

    def engine(self) -> type[PythonEngine]:
        return PythonEngine
