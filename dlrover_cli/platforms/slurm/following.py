"""Follow a submitted job in the foreground: its output and its end are ours, and Ctrl-C is its."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.launch.notifying import notify_of, shown_argv
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.script import check_script, name_of_script
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.status.nodes import samples_of_run
from dlrover_cli.launch.status.showing import showing_status
from dlrover_cli.launch.voice import insist, say
from dlrover_cli.manager.job import JobOutcome
from dlrover_cli.manager.launching import ManagedJobFailed
from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError, find_job
from dlrover_cli.platforms.slurm.ends import exit_code_of_end
from dlrover_cli.platforms.slurm.facts import JobFacts, explain_end
from dlrover_cli.platforms.slurm.guard import Guard
from dlrover_cli.platforms.slurm.history import MANAGER
from dlrover_cli.platforms.slurm.orphans import OrphanWatch
from dlrover_cli.platforms.slurm.submitting import LOGS, batch_for, sbatch_environ, write_script
from dlrover_cli.platforms.slurm.tailing import Tail
from dlrover_cli.workers.inbox import Inbox, SignalReceived

_AGENT = "launcher"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_LOOK_SECONDS = 0.1
_ASK_OFTEN, _ASK_SELDOM = 0.5, 5.0
_OFTEN_FOR = 30.0
_BASIC = ("run_id", "outcome", "exit_code", "reason", "hint", "argv", "started", "ended")


def submit_and_follow(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises ManagedJobFailed, or what keeps it from starting."""
    check_script(settings, os.environ)
    report = RunReport(settings.result_file, shown_argv(settings, argv), say)
    with reporting(report):
        batch_for(settings, GivenRun("", ""), os.getcwd())  # complains before anything is there
        name = name_of_script(settings.training_script)
        session = open_session(
            report,
            os.environ,
            say,
            name,
            agent=_AGENT,
            platform=settings.platform,
            notify=notify_of(settings),
        )
        try:
            with showing_status(settings, session.events, samples=samples_of_run(session)):
                outcome = _follow(settings, session)
            if outcome.exit_code != ExitCode.SUCCESS:
                raise FollowedJobFailed(outcome)
        except BaseException as error:
            session.close(error)
            insist(f"logs, events and result: {session.run_directory.path}")
            raise
        session.close(None)


class FollowedJobFailed(ManagedJobFailed):
    """The job's own manager has said so already, on the same terminal."""

    is_told = True


def _follow(settings: LaunchSettings, session: Session) -> JobOutcome:
    directory = session.run_directory
    given = GivenRun(directory.run_id, str(directory.path), MANAGER)
    batch = batch_for(settings, given, os.getcwd())
    script = write_script(batch, directory.path)
    guard = Guard.submit(script, sbatch_environ(os.environ, batch))
    session.events.record("slurm_submitted", job_id=guard.job_id)
    say(f"submitted Slurm job {guard.job_id}")
    inbox = Inbox()
    watch = JobWatch(Slurm(), guard.job_id, inbox.post)
    follower = Follower(directory.path, guard.job_id, session, watch)
    try:
        outcome = follower.run(inbox)
        guard.release()
        session.report.details = _details(follower.document)
        return outcome
    finally:
        watch.close()
        inbox.close()


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The job as Slurm tells of it; None if Slurm does not know it any more."""

    job: JobFacts | None


class JobWatch:
    """Asks Slurm for the job's state in a thread, often at first and whenever it is poked."""

    def __init__(self, slurm: Slurm, job_id: str, post: Callable[[object], None]) -> None:
        self.slurm = slurm
        self._job_id = job_id
        self._post = post
        self._closed = threading.Event()
        self._poked = threading.Event()
        self._orphans = OrphanWatch(slurm, job_id, say)
        self._thread = threading.Thread(target=self._run, name="slurm-job", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Something has happened: look soon."""
        self._poked.set()

    def close(self) -> None:
        self._closed.set()
        self._poked.set()
        self._thread.join(1.0)  # a command that hangs ends by its own deadline

    def _run(self) -> None:
        often_until = time.monotonic() + _OFTEN_FOR
        is_silent = False
        while not self._closed.is_set():
            try:
                self._post(JobSeen(self._look()))
                is_silent = False
            except SlurmError as error:
                if not is_silent and not self._closed.is_set():
                    say(f"{error.message}; still following the job")
                is_silent = True
            if self._poked.is_set():
                often_until = time.monotonic() + _OFTEN_FOR
            self._poked.clear()
            is_soon = time.monotonic() < often_until
            self._poked.wait(_ASK_OFTEN if is_soon else _ASK_SELDOM)

    def _look(self) -> JobFacts | None:
        job = find_job(self.slurm, self._job_id)
        if job is not None:
            self._orphans.look(job)
        return job


@dataclass(slots=True)
class Follower:
    """The loop of the foreground: output, state, signals."""

    run_directory: Path
    job_id: str
    session: Session
    watch: JobWatch
    document: Mapping[str, Any] = field(default_factory=dict)
    """The manager's result."""
    _said: str = ""
    _restarts: int = 0
    _signum: signal.Signals | None = None

    def run(self, inbox: Inbox) -> JobOutcome:
        logs = self.run_directory / LOGS
        tails = [Tail(logs / "stdout.log", 1), Tail(logs / "stderr.log", 2)]
        was_there = False
        with inbox.receiving_signals(_SIGNALS):
            while True:
                observation = inbox.next(time.monotonic() + _LOOK_SECONDS)
                for tail in tails:
                    tail.pump()
                is_there = self._result_path.exists()
                if is_there and not was_there:
                    self.watch.poke()
                was_there = is_there
                match observation:
                    case SignalReceived(signum=signum):
                        self._cancel(signum)
                    case JobSeen(job=job):
                        self._narrate(job)
                        if self._is_over(job):
                            for tail in tails:
                                tail.close()
                            return self._outcome(job)
                    case _:
                        pass

    @property
    def _result_path(self) -> Path:
        return self.run_directory / "nodes" / MANAGER / "result.json"

    def _narrate(self, job: JobFacts | None) -> None:
        if job is None:
            return
        words = ""
        if job.is_waiting and job.reason:
            words = f"Slurm job {self.job_id} waits: {job.reason}"
        elif job.state == "RUNNING":
            self._restarts = job.restarts
            again = f", for the {job.restarts + 1}. time" if job.restarts else ""
            words = f"Slurm job {self.job_id} runs on {job.node_list}{again}"
        if words and words != self._said:
            self._said = words
            say(words)
            self.session.events.record(
                "slurm_state", state=job.state, reason=job.reason, nodes=job.node_list
            )

    def _is_over(self, job: JobFacts | None) -> bool:
        if job is None or job.is_over:
            return True
        # With a dead node it completes for minutes, and is over all the same if its manager is.
        has_ended = job.state == "COMPLETING" and self._result_path.exists()
        return has_ended and job.restarts == self._restarts

    def _outcome(self, job: JobFacts | None) -> JobOutcome:
        with suppress(OSError, ValueError):
            self.document = json.loads(self._result_path.read_text())
        if self._signum is not None:
            reason = f"the launcher received {self._signum.name}"
            return JobOutcome(from_signal(self._signum), reason, self._signum)
        if self.document:
            return JobOutcome(int(self.document["exit_code"]), str(self.document["reason"]))
        reason = explain_end(job)
        say(reason)
        return JobOutcome(exit_code_of_end(job), reason)

    def _cancel(self, signum: signal.Signals) -> None:
        if self._signum is None:
            say(f"{signum.name}: cancelling Slurm job {self.job_id}")
        self._signum = self._signum or signum
        self.session.events.record("signal", signal=signum.name)
        threading.Thread(target=self._cancel_now, name="scancel", daemon=True).start()

    def _cancel_now(self) -> None:
        try:
            self.watch.slurm.run("scancel", self.job_id)
        except SlurmError as error:
            say(error.message)
        self.watch.poke()


def _details(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in _BASIC}
