"""The boundary to a job's plugin: whatever it raises or returns becomes a sentence of ours.

A request to stop passes through: it is meant for the run, and the plugin only happens to be there.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dlrover_cli.contracts.jobs import AbstractJobHandler, AbstractJobPlugin, BaseJob, JobResult
from dlrover_cli.contracts.jsonable import NotJsonable, check_round_trip
from dlrover_cli.jobs.stop_requests import StopRequested
from dlrover_cli.plugins.faults import describe


class PluginFailed(Exception):
    """The job cannot run, or nobody can tell how it does. The message is the sentence for it."""


class StopFailed(Exception):
    """The plugin could not stop the job, whose processes may go on."""


class CleanupFailed(Exception):
    """The plugin could not clean up; somebody may try again."""


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Around a call of the plugin: what it raises becomes PluginFailed, and is in runner.log."""
    try:
        yield
    except StopRequested:
        raise
    except BaseException as error:  # the boundary to the plugin, sys.exit included
        traceback.print_exc()
        raise PluginFailed(f"{what} raised {describe(error)}") from error


def check_handler(handler: object) -> AbstractJobHandler:
    """What `submit_job` has returned, if another process can read it. Raises PluginFailed."""
    if not isinstance(handler, AbstractJobHandler):
        raise PluginFailed(
            f"submit_job returned a {type(handler).__name__} and not an AbstractJobHandler"
        )
    try:
        check_round_trip(handler, "the handler")
    except NotJsonable as error:
        raise PluginFailed(f"submit_job returned what cannot be kept: {error.message}") from error
    return handler


def check_result(answer: object) -> JobResult:
    """What the handler's `wait` has returned. Raises PluginFailed."""
    match answer:
        case JobResult(exit_code=int(), reason=str()):
            return answer
        case _:
            raise PluginFailed(f"the handler's wait returned {answer!r:.100} and not a JobResult")


def stop_job(plugin: AbstractJobPlugin, job: BaseJob) -> None:
    """Raises StopFailed."""
    try:
        plugin.stop_job(job)
    except KeyboardInterrupt:
        raise  # of a person who does not want to wait for the end
    except BaseException as error:  # the boundary to the plugin
        raise StopFailed(
            f"stop_job raised {describe(error)}; its processes may still run"
        ) from error


def clean_up(plugin: AbstractJobPlugin, job: BaseJob, say: Callable[[str], None]) -> None:
    """Let the plugin clean up; what it raises is said, and becomes CleanupFailed."""
    try:
        plugin.cleanup_job(job)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the boundary to the plugin
        say(f"cleanup_job raised {describe(error)}")
        raise CleanupFailed(describe(error)) from error
