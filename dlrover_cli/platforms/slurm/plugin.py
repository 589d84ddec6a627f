"""slurm × torch: a training as a Slurm job of its own, submitted, watched and stopped from here.

The job goes on without whoever submitted it: Slurm keeps it, and its manager keeps the run.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrover_cli.config.declaring import Kind, Setting
from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.values import shown
from dlrover_cli.contracts.jobs import (
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
from dlrover_cli.errors import ConfigError, LaunchError
from dlrover_cli.jobs.job_config import property_places
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.engines import TorchEngine, properties_of
from dlrover_cli.platforms.slurm.batch import Batch
from dlrover_cli.platforms.slurm.commands import NoSuchJob, Slurm, SlurmError, find_job
from dlrover_cli.platforms.slurm.ends import exit_code_of_end
from dlrover_cli.platforms.slurm.facts import JobFacts, explain_end
from dlrover_cli.platforms.slurm.orphans import OrphanWatch
from dlrover_cli.platforms.slurm.submitting import SCRIPT, batch_for, sbatch_environ, write_script

_OWN_PROPERTIES = frozenset({"cwd", "env"})
_ASK_SECONDS = 0.5, 5.0
_STOP_SECONDS = 45.0


class SlurmPlatform(AbstractPlatform):
    """A cluster that Slurm manages."""

    @staticmethod
    def platform() -> str:
        return "slurm"


class SlurmTorchConfig(BaseJobConfig):
    """Properties: the settings of `dlrover-run`, `script`, `args`, `cwd` and `env`."""


class SlurmJob(BaseJob):
    """The command line of the job's manager, where it runs, and what it finds there."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(job_context, job_config)
        self.arguments: list[str] = []
        self.env: dict[str, str] = {}
        self.cwd = job_context.project.project_path


class SlurmHandler(AbstractJobHandler):
    """A job that Slurm has taken."""

    def __init__(self, job_id: str, run_directory: str) -> None:
        super().__init__()
        self.job_id = job_id
        self.run_directory = run_directory

    def wait(self, timeout: float | None = None) -> JobResult | None:
        """How the job ended; None if it still runs after ``timeout`` seconds."""
        started = time.monotonic()
        slurm = Slurm()
        orphans = OrphanWatch(slurm, self.job_id, _tell)
        while True:
            try:
                job = find_job(slurm, self.job_id)
                if job is None or job.is_over:
                    return self._result(job)
                if timeout is None:  # whoever only looks leaves the job alone
                    orphans.look(job)
            except SlurmError as error:
                _tell(f"{error.message}; asking again")
            waited = time.monotonic() - started
            pause = min(_ASK_SECONDS[1], max(_ASK_SECONDS[0], waited / 20))
            if timeout is not None:
                pause = min(pause, timeout - waited)
            if pause <= 0:
                return None
            time.sleep(pause)

    def _result(self, job: JobFacts | None) -> JobResult:
        with suppress(OSError, ValueError, KeyError):
            result = json.loads(Path(self.run_directory, "result.json").read_text())
            return JobResult(int(result["exit_code"]), str(result["reason"]))
        return JobResult(exit_code_of_end(job), explain_end(job))


class SlurmTorchPlugin(AbstractJobPlugin):
    """`dlrover-run --platform=slurm` as a batch job. All of its settings are properties."""

    honours_periodic_config = True
    honours_resources = True

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> SlurmJob:
        config = sub_graph.config
        place = property_places(config)
        job = SlurmJob(JobContext(project_desc), config)
        given = properties_of(config)
        settings = {name: each for name, each in given.items() if name not in _OWN_PROPERTIES}
        if settings.setdefault("platform", "slurm") != "slurm":
            hint = "Leave it out: the job says already where it runs."
            what = f"{place('platform')}: platform contradicts the platform of the job"
            raise ConfigError(what, setting="platform", hint=hint)
        if not {"redirects", "tee"} & settings.keys():
            settings["redirects"] = "3"
        job.arguments = list(launch_arguments(settings, place))
        job.env = _texts_by_name(given.get("env", {}), place("env"))
        job.cwd = os.path.abspath(os.path.join(job.cwd, _text(given.get("cwd", ""), place("cwd"))))
        batch_for(settings_of(job), GivenRun("", ""), job.cwd)  # complains about what it cannot ask
        return job

    def generate_job_resource(self, job: AbstractJob) -> None:
        """The batch script, and a directory for its output."""
        assert isinstance(job, SlurmJob)
        write_script(_batch(job), job.run_directory)

    def submit_job(self, job: AbstractJob) -> SlurmHandler:
        assert isinstance(job, SlurmJob)
        batch = _batch(job)
        (job.run_directory / "result.json").unlink(missing_ok=True)  # of the time before
        slurm = Slurm(sbatch_environ({**os.environ, **job.env}, batch))
        printed = slurm.run("sbatch", "--parsable", str(job.run_directory / SCRIPT), deadline=60.0)
        return SlurmHandler(printed.strip().partition(";")[0], job.job_context.run_directory)

    def stop_job(self, job: AbstractJob) -> None:
        """scancel, and wait for the end. Raises LaunchError if it does not come."""
        slurm, job_id = Slurm(), _job_id(job)
        if job_id is None:
            return
        grace = job.job_context.stop_grace
        with suppress(NoSuchJob):
            slurm.run("scancel", job_id)
        deadline = time.monotonic() + (_STOP_SECONDS if grace is None else grace)
        while (facts := find_job(slurm, job_id)) is not None and not facts.is_over:
            if time.monotonic() >= deadline:
                _kill(slurm, job_id)
                raise LaunchError(
                    f"Slurm job {job_id} is still {facts.state}",
                    hint=f"Slurm ends it after its KillWait: scontrol show job {job_id}",
                )
            time.sleep(_ASK_SECONDS[0])

    def cleanup_job(self, job: AbstractJob) -> None:
        """Nothing but files is left of a job that Slurm has ended; the run keeps those."""
        job_id = _job_id(job)
        facts = None if job_id is None else find_job(Slurm(), job_id)
        if facts is not None and not facts.is_over:
            self.stop_job(job)

    def job_type(self) -> type[SlurmJob]:
        return SlurmJob

    def job_config_type(self) -> type[SlurmTorchConfig]:
        return SlurmTorchConfig

    def platform(self) -> type[SlurmPlatform]:
        return SlurmPlatform

    def engine(self) -> type[TorchEngine]:
        return TorchEngine


def settings_of(job: SlurmJob) -> LaunchSettings:
    """What the arguments, the environment and the config file in the job's directory make up."""
    end = job.arguments.index("--")
    flags: dict[str, Any] = {
        "training_script": job.arguments[end + 1],
        "training_script_args": job.arguments[end + 2 :],
    }
    for text in job.arguments[:end]:
        option, _, value = text.partition("=")
        setting = _BY_OPTION[option]
        if setting.kind is Kind.FLAG:
            flags[setting.name] = True
        elif setting.repeatable:
            flags.setdefault(setting.name, []).append(value)
        else:
            flags[setting.name] = value
    return resolve_settings(flags, {**os.environ, **job.env}, Path(job.cwd))


def _batch(job: SlurmJob) -> Batch:
    context = job.job_context
    return batch_for(settings_of(job), GivenRun(context.run_id, context.run_directory), job.cwd)


def _job_id(job: AbstractJob) -> str | None:
    """Also if whoever submitted it was killed before it could write the number down."""
    handler = job.job_handler
    if isinstance(handler, SlurmHandler):
        return handler.job_id
    script = str(job.run_directory / SCRIPT)
    for line in Slurm().run("squeue", "--noheader", "--format=%A %o").splitlines():
        number, _, command = line.strip().partition(" ")
        if command.strip() == script:
            return number
    return None


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - in runner.log


def _kill(slurm: Slurm, job_id: str) -> None:
    with suppress(SlurmError):
        slurm.run("scancel", "--full", "--signal=KILL", job_id)


def _texts_by_name(value: object, place: str) -> dict[str, str]:
    if isinstance(value, Mapping) and all(
        isinstance(key, str) and key and isinstance(text, str) for key, text in value.items()
    ):
        return dict(value)
    raise ConfigError(
        f"{place}: env takes a mapping of texts, not {shown(value, table='a mapping')}",
        setting="env",
        hint='Write it like this: env: {NAME: "value"}',
    )


def _text(value: object, place: str) -> str:
    if isinstance(value, str) and "\0" not in value:
        return value
    raise ConfigError(
        f"{place}: cwd takes a text, not {shown(value)}",
        setting="cwd",
        hint="Write it like this: cwd: src",
    )


_BY_OPTION: Mapping[str, Setting] = {setting.option: setting for setting in SETTINGS}
