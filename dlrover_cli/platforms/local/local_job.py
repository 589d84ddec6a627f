"""What all engines of the local platform share: a job is one command, run as a process here.

Siblings say which command; it is started, watched, stopped and cleaned up after in this file alone.
"""

import os
import socket
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from dlrover_cli.contracts.jobs import (
    AbstractJob,
    AbstractJobPlugin,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    JobContext,
    JobResult,
    ProjectDesc,
)
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.job_config import property_places
from dlrover_cli.launch.given_run import VARIABLE as GIVEN_RUN_VARIABLE
from dlrover_cli.platforms.local.process_handler import LocalProcessHandler
from dlrover_cli.platforms.local.process_tree import stop_tree
from dlrover_cli.platforms.local.properties import Properties
from dlrover_cli.platforms.local.run_processes import RUN_ID_VARIABLE
from dlrover_cli.platforms.local.starting import CannotStart, start
from dlrover_cli.telemetry.process_identity import ProcessIdentity

SHUTDOWN_TIMEOUT = 30.0

COMMON_PROPERTIES = ("cwd", "env", "shutdown_timeout")


class LocalPlatform(AbstractPlatform):
    """This host."""

    @staticmethod
    def platform() -> str:
        return "local"


class LocalJob(BaseJob):
    """A command, where it runs, and what it finds in its environment besides the runner's own."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(job_context, job_config)
        self.argv: list[str] = []
        self.env: dict[str, str] = {}
        self.cwd = job_context.project.project_path
        self.shutdown_timeout = SHUTDOWN_TIMEOUT
        """Seconds between SIGTERM and SIGKILL, when it is stopped."""


class LocalPlugin(AbstractJobPlugin):
    """Runs a command as a process of this host. Subclasses make the command in `fill_in`.

    Properties of all engines: `cwd`, from the job file's directory, by default that directory;
    paths in other properties are meant from there. `env`, variables to add to the environment.
    `shutdown_timeout`, the seconds that the job has to end when it is stopped.

    A job ends with its main process. What it has left running is ended when the job is cleaned up.
    """

    honours_periodic_config = True
    is_told_alone: ClassVar[bool] = False
    """Whether the main process stops the others itself, and is the only one to get SIGTERM."""
    margin: ClassVar[float] = 0.0
    """Seconds that such a main process has for itself, after a grace that was asked for."""

    @abstractmethod
    def fill_in(self, job: LocalJob, given: Properties) -> None:
        """Put the command into the job; complain about properties. Start and create nothing."""

    def shutdown_timeout(self, job: LocalJob, given: Properties) -> float:
        """How many seconds the job has to end."""
        return given.seconds("shutdown_timeout", SHUTDOWN_TIMEOUT)

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> LocalJob:
        config = sub_graph.config
        job = LocalJob(JobContext(project_desc), config)
        given = Properties(config.properties, self.engine().engine(), property_places(config))
        self.fill_in(job, given)
        job.shutdown_timeout = self.shutdown_timeout(job, given)
        job.env |= given.texts_by_name("env")
        for name in (RUN_ID_VARIABLE, GIVEN_RUN_VARIABLE):
            if name in job.env:
                hint = "Leave it out: it tells the job's processes which run they belong to."
                raise given.wrong("env", f"cannot set {name}", hint)
        job.cwd = os.path.abspath(os.path.join(job.cwd, given.text("cwd", default="")))
        return job

    def generate_job_resource(self, job: AbstractJob) -> None:
        """Make the directory of the job's output."""
        _make_private(_log_directory(job), job.run_directory)

    def submit_job(self, job: AbstractJob) -> LocalProcessHandler:
        assert isinstance(job, LocalJob)
        context = job.job_context
        with self.output(job) as (stdout, stderr):
            try:
                main = start(
                    job.argv,
                    cwd=job.cwd,
                    env=self.environment(job),
                    stdout=stdout,
                    stderr=stderr,
                )
            except CannotStart as error:
                os.write(stderr, f"{error}\n".encode(errors="replace"))
                return LocalProcessHandler(
                    context.run_id,
                    context.run_directory,
                    None,
                    not_started=JobResult(error.exit_code, str(error)),
                )
        return LocalProcessHandler(context.run_id, context.run_directory, main)

    def stop_job(self, job: AbstractJob) -> None:
        """TERM, grace, KILL to all processes of the run. Raises LaunchError if some go on."""
        main = _main_process(job)
        if main is not None and not main.is_here:
            raise LaunchError(
                f"the job's processes run on {main.host} and cannot be ended from here",
                hint=f"log in to {main.host} and stop the run there",
            )
        grace = job.job_context.stop_grace
        self._end(job, _shutdown_timeout(job) if grace is None else grace + self.margin)

    def cleanup_job(self, job: AbstractJob) -> None:
        """End what the job left running. Its output stays for as long as the run is kept."""
        main = _main_process(job)
        if main is None or main.is_here:
            self._end(job, _shutdown_timeout(job))

    def job_type(self) -> type[LocalJob]:
        return LocalJob

    def platform(self) -> type[LocalPlatform]:
        return LocalPlatform

    def environment(self, job: LocalJob) -> dict[str, str]:
        """Everything that the job's process finds in its environment."""
        # Only the launcher that is the job takes part in its run; one that a job starts does not.
        inherited = {key: each for key, each in os.environ.items() if key != GIVEN_RUN_VARIABLE}
        return inherited | job.env | {RUN_ID_VARIABLE: job.job_context.run_id}

    @contextmanager
    def output(self, job: LocalJob) -> Iterator[tuple[int, int]]:
        """Where its stdout and stderr go, opened."""
        directory = _log_directory(job)
        _make_private(directory, job.run_directory)
        with (
            opened_log(directory / "stdout.log") as out,
            opened_log(directory / "stderr.log") as err,
        ):
            yield out, err

    def _end(self, job: AbstractJob, grace: float) -> None:
        main = _main_process(job)
        left = stop_tree(
            job.job_context.run_id,
            [main] if main is not None else [],
            grace=grace,
            leader=main if self.is_told_alone else None,
        )
        if job.job_handler is not None:
            job.job_handler.wait(0)  # if it is our child, its zombie goes, and its status is kept
        if left:
            raise _not_ended(left)


@contextmanager
def opened_log(path: Path) -> Iterator[int]:
    """A private file to which output is appended: what stands in it is never overwritten."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _main_process(job: AbstractJob) -> ProcessIdentity | None:
    return job.job_handler.main if isinstance(job.job_handler, LocalProcessHandler) else None


def _shutdown_timeout(job: AbstractJob) -> float:
    """Also for a launcher that somebody ran by hand: it is a job, and has never been generated."""
    return job.shutdown_timeout if isinstance(job, LocalJob) else SHUTDOWN_TIMEOUT


def _log_directory(job: AbstractJob) -> Path:
    """As a node with one rank has it, so that `dlrover-job logs` needs to know one layout only."""
    agent = f"{socket.gethostname()}.{os.getpid()}"
    attempt = f"attempt_{job.job_context.occurrence}"
    return job.run_directory / "nodes" / agent / "logs" / attempt / "0"


def _make_private(directory: Path, above: Path) -> None:
    for each in reversed([directory, *directory.parents]):
        if each.is_relative_to(above) and each != above:
            each.mkdir(mode=0o700, exist_ok=True)


def _not_ended(left: tuple[ProcessIdentity, ...]) -> LaunchError:
    pids = ", ".join(str(each.pid) for each in left)
    return LaunchError(
        f"could not be ended, not even by SIGKILL: {'process' if len(left) == 1 else 'processes'} "
        f"{pids}",
        hint="a process that waits for a device or a network file system ends once that answers: "
        f"ps -o pid,stat,wchan,cmd -p {pids.replace(' ', '')}",
    )
