"""Targets of a Makefile as jobs: the engine `make` on the platform `local`.

    docs:
      engine: make
      properties: {target: docs, jobs: 4, variables: {PAPER: a4}}

How a process of this host is started, watched, stopped and cleaned up after is the local
platform's own; an engine only says which command it is.
"""

from pathlib import Path

from dlrover_cli.contracts import AbstractEngine, BaseJobConfig
from dlrover_cli.platforms.local.local_job import COMMON_PROPERTIES, LocalJob, LocalPlugin
from dlrover_cli.platforms.local.properties import Properties


class MakeEngine(AbstractEngine):
    """GNU make."""

    @staticmethod
    def engine() -> str:
        return "make"


class MakeConfig(BaseJobConfig):
    """Properties: `target`, `makefile`, `jobs`, `variables`, and those of every local job."""

    def __init__(self, **more):
        super().__init__(**more)
        self.properties = {"makefile": "Makefile", "jobs": 1} | self.properties


class LocalMakePlugin(LocalPlugin):
    """`make --jobs=4 --file=Makefile PAPER=a4 docs`."""

    def fill_in(self, job: LocalJob, given: Properties) -> None:
        given.refuse_others("target", "makefile", "jobs", "variables", *COMMON_PROPERTIES)
        makefile = given.text("makefile")
        folder = Path(job.cwd, given.text("cwd", "."))
        if not (folder / makefile).is_file():
            hint = "It is meant from cwd, which is the job file's folder unless it says otherwise."
            raise given.wrong("makefile", f"names {makefile}, and {folder} has none", hint)
        variables = [f"{name}={text}" for name, text in given.texts_by_name("variables").items()]
        target = [given.text("target")] if "target" in given else []
        job.argv = ["make", f"--jobs={_number(given)}", f"--file={makefile}", *variables, *target]

    def job_config_type(self) -> type[MakeConfig]:
        return MakeConfig

    def engine(self) -> type[MakeEngine]:
        return MakeEngine


def _number(given: Properties) -> int:
    jobs = given.values["jobs"]
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise given.wrong("jobs", f"is {jobs!r}", "Write how many recipes may run at once: jobs: 4")
    return jobs
