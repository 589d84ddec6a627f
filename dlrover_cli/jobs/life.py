"""The life of one submitted run: wait, start, watch, stop, clean up; each step is recorded.

`Life.live` never raises for what a plugin does: the record says how the run ended.
"""

import math
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from dlrover_cli.contracts.jobs import AbstractJobPlugin, BaseJob, JobResult
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.jobs.admission import Gate
from dlrover_cli.jobs.loading import write_handler
from dlrover_cli.jobs.periodic import Schedule, parse_periodic
from dlrover_cli.jobs.plugin_calls import (
    CleanupFailed,
    PluginFailed,
    StopFailed,
    blaming,
    check_handler,
    check_result,
    clean_up,
    stop_job,
)
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.results import Outcome, reason_in, write_result
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.stop_requests import (
    RoomRequested,
    StopRequested,
    StopRequests,
)
from dlrover_cli.telemetry.stop_request import read_stop_request
from dlrover_cli.words import moment

_PAUSE = 1.0
"""Between two questions to a handler that does not wait for its job's end, but looks for it."""
_LONGEST_SLEEP = 60.0
"""The clock may be set, and the machine may sleep, while a job waits for its time."""


class Life:
    """Runs in the process that owns the run, in its main thread."""

    def __init__(
        self,
        files: RunFiles,
        record: RunRecord,
        plugin: AbstractJobPlugin,
        job: BaseJob,
        stops: StopRequests,
        say: Callable[[str], None],
        gate: Gate,
    ) -> None:
        self._files = files
        self._record = record
        self._plugin = plugin
        self._job = job
        self._stops = stops
        self._say = say
        self._gate = gate
        self._is_submitted = False
        self._owes_cleanup = True

    def live(self, wait_until_allowed: Callable[[], str | None]) -> None:
        """From PENDING to the end. ``wait_until_allowed`` says why the run may never start."""
        try:
            self._live_until_stopped(wait_until_allowed)
        except StopFailed as error:
            traceback.print_exception(error)
            self._record.move(RunState.LOST, reason=str(error))
        finally:
            self._clean_up()
            if self._record.state is not RunState.LOST:
                self._gate.leave()

    def _live_until_stopped(self, wait_until_allowed: Callable[[], str | None]) -> None:
        try:
            self._live(wait_until_allowed)
        except StopRequested:
            self._stop()

    def _live(self, wait_until_allowed: Callable[[], str | None]) -> None:
        with self._stops.interrupting():
            refusal = wait_until_allowed()
        if refusal is not None:
            self._record.move(RunState.SKIPPED, reason=refusal)
        elif self._job.job_config.periodic_config is None or self._plugin.platform_repeats:
            result = self._run_in_turn()
            state = RunState.FINISHED if result.is_success else RunState.FAILED
            self._record.move(state, reason=result.reason, exit_code=result.exit_code)
        else:
            self._repeat(parse_periodic(self._job.job_config.periodic_config))

    def _repeat(self, schedule: Schedule) -> None:
        """Ends only by a request to stop. A run that fails does not keep the next from its turn."""
        due = schedule.first(time.time())
        if due > time.time():
            self._record.wait(f"next at {moment(due)}")
        while True:
            with self._stops.interrupting():
                _sleep_until(due)
            result = self._run_in_turn()
            number = self._job.job_context.occurrence
            self._record.note(
                "occurrence", number=number, exit_code=result.exit_code, reason=result.reason
            )
            self._clean_up_occurrence()
            self._leave()
            due = next_turn(schedule, due, time.time())
            self._record.move(RunState.STOPPING, reason=f"run {number} of it is over")
            self._record.move(
                RunState.PENDING,
                reason=f"next at {moment(due)}",
                exit_code=result.exit_code,
            )
            self._job.job_context.occurrence += 1

    def _run_in_turn(self) -> JobResult:
        """Run the job when it may; once more if it had to make room for another."""
        while True:
            try:
                self._gate.enter(self._stops.interrupting)
                return self._run_once()
            except RoomRequested:
                self._make_room(self._gate.why_it_makes_room())

    def _make_room(self, reason: str) -> None:
        """End what runs and wait again; this is nobody's failure and costs no budget."""
        self._record.move(RunState.STOPPING, reason=reason)
        if self._is_submitted:
            stop_job(self._plugin, self._job)
        self._is_submitted = False
        self._clean_up_occurrence()
        self._job.job_context.occurrence += 1  # what it has written so far stays
        self._record.move(RunState.PENDING, reason=reason)
        self._leave()

    def _leave(self) -> None:
        self._gate.leave()
        self._stops.has_made_room()  # whoever asks does so while it holds what the gate lets go

    def _run_once(self) -> JobResult:
        """How the job ended; what its plugin fails at is an end, too. Raises StopFailed."""
        started = time.time()
        self._owes_cleanup = True
        self._job.job_handler = None
        for left in (self._files.result, self._files.handler):  # of the occurrence before
            left.unlink(missing_ok=True)
        self._record.move(RunState.STARTING)
        try:
            result = self._run()
        except PluginFailed as error:
            result = JobResult(ExitCode.FAILURE, str(error))
        self._is_submitted = False
        outcome = Outcome.SUCCEEDED if result.is_success else Outcome.FAILED
        write_result(self._files, outcome, result, started=started, say=self._say)
        return JobResult(result.exit_code, reason_in(self._files, result) or result.reason)

    def _run(self) -> JobResult:
        with self._stops.interrupting(), blaming("generate_job_resource"):
            self._plugin.generate_job_resource(self._job)
        # Not to be interrupted: nobody would know of the job that it was about to start.
        with blaming("submit_job"):
            handler = self._plugin.submit_job(self._job)
        self._is_submitted = True
        try:
            self._job.job_handler = check_handler(handler)
            self._keep_handler()
            self._record.move(RunState.RUNNING)
            return self._wait()
        except PluginFailed:
            stop_job(self._plugin, self._job)
            raise

    def _keep_handler(self) -> None:
        assert self._job.job_handler is not None
        try:
            write_handler(self._files, self._job.job_handler)
        except OSError as error:  # this process knows it all the same
            self._say(f"cannot write {self._files.handler}: {error.strerror}")

    def _wait(self) -> JobResult:
        handler = self._job.job_handler
        assert handler is not None
        while True:
            with self._stops.interrupting(), blaming("the handler's wait"):
                answer = handler.wait()
            if answer is not None:
                return check_result(answer)
            with self._stops.interrupting():
                time.sleep(_PAUSE)

    def _stop(self) -> None:
        request = read_stop_request(self._files.path)
        self._record.note("stop_requested", **request)
        self._job.job_context.stop_grace = request["grace"]
        number = self._stops.signal
        assert number is not None
        self._record.move(RunState.STOPPING, reason=f"asked to stop by {number.name}")
        submitted = (self._plugin, self._job) if self._is_submitted else None
        stop_and_record(self._record, submitted, number, self._say)

    def _clean_up_occurrence(self) -> None:
        with suppress(CleanupFailed):
            clean_up(self._plugin, self._job, self._say)
            self._owes_cleanup = False

    def _clean_up(self) -> None:
        if self._record.state is RunState.LOST:
            return  # the job may still run; whoever stops it cleans up
        with suppress(CleanupFailed), self._record.cleaning() as is_due:
            if is_due and self._owes_cleanup:
                clean_up(self._plugin, self._job, self._say)


def stop_and_record(
    record: RunRecord,
    submitted: tuple[AbstractJobPlugin, BaseJob] | None,
    by: signal.Signals,
    say: Callable[[str], None],
) -> None:
    """From STOPPING to KILLED. Raises StopFailed."""
    if submitted is not None:
        stop_job(*submitted)
    result = JobResult(from_signal(by), "stopped")
    started = record.story.started
    if started is not None:
        write_result(record.files, Outcome.SIGNALLED, result, started=started, say=say)
    record.move(RunState.KILLED, reason=result.reason, exit_code=result.exit_code)


def next_turn(schedule: Schedule, due: float, now: float) -> float:
    """After the one that was ``due``. Turns that went by while the job ran are left out."""
    following = schedule.next(due)
    if following >= now:
        return following
    if schedule.interval is None:
        return schedule.first(now)
    return due + schedule.interval * math.ceil((now - due) / schedule.interval)


def _sleep_until(due: float) -> None:
    while (left := due - time.time()) > 0:
        time.sleep(min(left, _LONGEST_SLEEP))
