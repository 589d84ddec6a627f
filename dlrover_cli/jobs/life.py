"""The life of one submitted run: wait, start, watch, stop, clean up; each step is recorded.

`Life.live` never raises for what a plugin does: the record says how the run ended.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dlrover_cli.contracts.jobs import AbstractJobHandler, AbstractJobPlugin, BaseJob, JobResult
from dlrover_cli.contracts.jsonable import check_round_trip
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.jobs.loading import write_handler
from dlrover_cli.jobs.periodic import Schedule, parse_periodic
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.results import reason_in, write_result
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.stop_requests import StopRequested, StopRequests, read_stop_request
from dlrover_cli.plugins.faults import describe


class PluginRaised(Exception):
    """A method of the plugin raised; the message is the sentence for it."""


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
    ) -> None:
        self._files = files
        self._record = record
        self._plugin = plugin
        self._job = job
        self._stops = stops
        self._say = say
        self._is_submitted = False
        self._owes_cleanup = True

    def live(self, wait_until_allowed: Callable[[], str | None]) -> None:
        """From PENDING to the end. ``wait_until_allowed`` says why the run may never start."""
        try:
            with self._stops.interrupting():
                refusal = wait_until_allowed()
            if refusal is not None:
                self._record.move(RunState.SKIPPED, reason=refusal)
            elif self._job.job_config.periodic_config is None:
                self._end(self._run_once())
            else:
                self._repeat(parse_periodic(self._job.job_config.periodic_config))
        except StopRequested:
            self._stop()
        except PluginRaised as error:
            self._end(JobResult(ExitCode.FAILURE, str(error)))
        finally:
            self._clean_up()

    def _repeat(self, schedule: Schedule) -> None:
        """Ends only by a request to stop. A run that fails does not keep the next from its turn."""
        due = schedule.first(time.time())
        while True:
            with self._stops.interrupting():
                time.sleep(max(0.0, due - time.time()))
            try:
                result = self._run_once()
            except PluginRaised as error:
                result = JobResult(ExitCode.FAILURE, str(error))
            number = self._job.job_context.occurrence
            self._record.note(
                "occurrence", number=number, exit_code=result.exit_code, reason=result.reason
            )
            self._clean_up_occurrence()
            due = _next_turn(schedule, due)
            self._record.move(RunState.STOPPING, reason=f"run {number} of it is over")
            self._record.move(
                RunState.PENDING,
                reason=f"next at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(due))}",
                exit_code=result.exit_code,
            )
            self._job.job_context.occurrence += 1

    def _run_once(self) -> JobResult:
        started = time.time()
        self._owes_cleanup = True
        self._files.result.unlink(missing_ok=True)
        self._record.move(RunState.STARTING)
        with self._stops.interrupting(), _blaming("generate_job_resource"):
            self._plugin.generate_job_resource(self._job)
        self._submit()
        self._record.move(RunState.RUNNING)
        result = self._wait()
        self._is_submitted = False
        write_result(self._files, result, started=started)
        return JobResult(result.exit_code, reason_in(self._files) or result.reason)

    def _submit(self) -> None:
        with _blaming("submit_job"):
            handler = self._plugin.submit_job(self._job)
        self._is_submitted = True
        self._job.job_handler = handler
        try:
            with _blaming("submit_job"):
                self._keep(handler)
        except PluginRaised:
            self._try_to_stop()
            raise

    def _keep(self, handler: object) -> None:
        if not isinstance(handler, AbstractJobHandler):
            raise TypeError(f"it returned a {type(handler).__name__} and not an AbstractJobHandler")
        check_round_trip(handler, "the handler")
        write_handler(self._files, handler)

    def _wait(self) -> JobResult:
        handler = self._job.job_handler
        assert handler is not None
        result: JobResult | None = None
        try:
            with self._stops.interrupting(), _blaming("the handler's wait"):
                while result is None:
                    result = _checked(handler.wait())
        except PluginRaised:
            self._try_to_stop()
            raise
        return result

    def _end(self, result: JobResult) -> None:
        state = RunState.FINISHED if result.is_success else RunState.FAILED
        if self._record.state is RunState.STARTING and result.is_success:
            self._record.move(RunState.RUNNING)
        self._record.move(state, reason=result.reason, exit_code=result.exit_code)

    def _stop(self) -> None:
        request = read_stop_request(self._files)
        self._record.note("stop_requested", **request)
        self._job.job_context.stop_grace = request["grace"]
        number = self._stops.signal
        assert number is not None
        self._record.move(RunState.STOPPING, reason=f"asked to stop by {number.name}")
        stop_and_record(
            self._record, self._plugin if self._is_submitted else None, self._job, int(number)
        )

    def _try_to_stop(self) -> None:
        try:
            self._plugin.stop_job(self._job)
        except Exception:  # noqa: BLE001 - the boundary to the plugin; the first fault is reported
            self._say(traceback.format_exc())

    def _clean_up_occurrence(self) -> None:
        with suppress(CleanupFailed):
            clean_up(self._plugin, self._job, self._say)
            self._owes_cleanup = False

    def _clean_up(self) -> None:
        with suppress(CleanupFailed), self._record.cleaning() as is_due:
            if is_due and self._owes_cleanup:
                clean_up(self._plugin, self._job, self._say)


class CleanupFailed(Exception):
    """The plugin could not clean up; somebody may try again."""


def stop_and_record(
    record: RunRecord, plugin: AbstractJobPlugin | None, job: BaseJob, signum: int
) -> None:
    """From STOPPING to KILLED; without a plugin, nothing was started. If the plugin fails: LOST."""
    if plugin is not None:
        try:
            plugin.stop_job(job)
        except Exception as error:  # noqa: BLE001 - the boundary to the plugin
            record.move(
                RunState.LOST,
                reason=f"stop_job raised {describe(error)}; its processes may still run",
            )
            return
    record.move(RunState.KILLED, reason="stopped", exit_code=from_signal(signum))


def clean_up(plugin: AbstractJobPlugin, job: BaseJob, say: Callable[[str], None]) -> None:
    """Let the plugin clean up; what it raises is said, and becomes CleanupFailed."""
    try:
        plugin.cleanup_job(job)
    except Exception as error:  # the boundary to the plugin
        say(f"cleanup_job raised {describe(error)}")
        raise CleanupFailed from error


def _checked(answer: object) -> JobResult | None:
    """What a handler has answered, which need not be what its author promised."""
    match answer:
        case None | JobResult(exit_code=int(), reason=str()):
            return answer
        case _:
            raise TypeError(f"it returned {answer!r} and not a JobResult")


def _next_turn(schedule: Schedule, due: float) -> float:
    """Turns that went by while the job ran are not made up for."""
    now = time.time()
    following = schedule.next(due)
    return following if following >= now else schedule.first(now)


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the boundary to the plugin
        traceback.print_exc()
        raise PluginRaised(f"{what} raised {describe(error)}") from error
