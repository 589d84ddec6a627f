"""Stopping a run from any process: its owner is asked; if it has none any more, we do it ourselves.

Whoever asks for a grace gets an end in any case: an owner that does not react is killed.
"""

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dlrover_cli.contracts.run_states import ENDED, RunState
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger, RunRow, UnknownRun, may_live
from dlrover_cli.jobs.life import stop_and_record
from dlrover_cli.jobs.loading import load_what_was_started
from dlrover_cli.jobs.plugin_calls import CleanupFailed, StopFailed, clean_up
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.jobs.waiting import wait_for_end
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.stop_request import write_stop_request

_SECONDS_TO_REACT = 10.0
"""What an owner gets beyond the job's grace before it is killed itself."""


def stop_run(
    run_id: str,
    ledger: Ledger,
    state: Path,
    *,
    grace: float | None = None,
    wait: bool = True,
    on_problem: Callable[[str], None] = lambda line: None,
) -> RunRow:
    """Stop a run and, unless told not to, wait until it has ended. One that has is no error.

    Raises DlroverError if it cannot be stopped: it runs on another host, or its plugin is gone.
    """
    files = RunFiles.of(state, run_id)
    heal(ledger, state, on_problem=on_problem)
    if ledger.row(run_id).state in ENDED:
        return ledger.row(run_id)
    try:
        _stop(files, ledger, state, grace, wait, on_problem)
    except FileNotFoundError as error:
        raise UnknownRun(run_id) from error  # removed as soon as it had ended
    heal(ledger, state, on_problem=on_problem)
    return ledger.row(run_id)


def _stop(
    files: RunFiles,
    ledger: Ledger,
    state: Path,
    grace: float | None,
    wait: bool,
    on_problem: Callable[[str], None],
) -> None:
    with RunRecord.reopen(files, ledger, on_problem) as record:
        _refuse_other_hosts(record)
        try:
            write_stop_request(files.path, grace)
        except OSError as error:  # a full disk: the signal says enough
            on_problem(f"cannot write {files.stop_request}: {error.strerror}")
        if not _ask_owner(files, record.story, grace, wait=wait):
            heal(ledger, state, on_problem=on_problem)
            _stop_in_its_place(files, record, grace, on_problem)


def _refuse_other_hosts(record: RunRecord) -> None:
    owner = record.story.owner
    if owner is not None and not owner.is_here:
        raise LaunchError(
            f"process {owner.pid} of {owner.host} owns the run, and cannot be reached from here",
            hint=f"on {owner.host}: dlrover-job stop {record.document.run_id}",
        )


def _ask_owner(files: RunFiles, story: Story, grace: float | None, *, wait: bool) -> bool:
    """Whether the owner ends the run, or has."""
    if not _is_asked(story):
        return False
    if not wait:
        return True
    story = wait_for_end(files, None if grace is None else grace + _SECONDS_TO_REACT)
    if story.state in ENDED:
        return True
    if story.owner is not None and story.owner.signal(signal.SIGKILL):
        wait_for_end(files)
    return False


def _is_asked(story: Story) -> bool:
    """Whether somebody else ends the run. One who has taken it over does so without being asked."""
    if story.owner is None or story.owner == ProcessIdentity.own():
        return False
    if story.is_taken_over:
        return story.owner.is_alive()
    is_there = story.owner.signal(signal.SIGTERM)
    story.owner.signal(signal.SIGCONT)  # one that somebody has suspended could not react
    return is_there


def _stop_in_its_place(
    files: RunFiles, record: RunRecord, grace: float | None, on_problem: Callable[[str], None]
) -> None:
    """For a run that is LOST: own it, end what it left, and clean up."""
    loaded = load_what_was_started(files, record.document, record.refresh())
    if not record.own(ProcessIdentity.own(), when=_is_ownerless):
        wait_for_end(files)  # somebody else was faster
        return
    was_started = record.story.started is not None
    record.note("stop_requested", by=ProcessIdentity.own().to_json(), grace=grace)
    record.move(RunState.STOPPING, reason="its owner was gone; stopped by another process")
    if loaded is None:
        stop_and_record(record, None, signal.SIGTERM, on_problem)
        return
    plugin, job = loaded
    job.job_context.stop_grace = grace
    try:
        stop_and_record(record, loaded if was_started else None, signal.SIGTERM, on_problem)
    except StopFailed as error:
        record.move(RunState.LOST, reason=str(error))
        return
    with suppress(CleanupFailed), record.cleaning() as is_due:
        if is_due:
            clean_up(plugin, job, on_problem)


def _is_ownerless(story: Story) -> bool:
    owner = story.owner
    is_free = owner is None or not may_live(owner) or owner == ProcessIdentity.own()
    return story.state is RunState.LOST and is_free
