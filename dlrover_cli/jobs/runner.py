"""The process of one submitted run: `python -m dlrover_cli.jobs.runner RUN_DIRECTORY FIRST_RUN`.

It waits until its submitter has gone from the pipe at its stdin, and owns the run from then on.
What it and the plugin print is in the run's ``runner.log``.
"""

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.jobs.admission import MakeGate, open_gate
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.ledger_file import LedgerError
from dlrover_cli.jobs.life import Life
from dlrover_cli.jobs.loading import load_job
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.runner_log import print_to_log
from dlrover_cli.jobs.staging import settle
from dlrover_cli.jobs.stop_requests import StopRequests
from dlrover_cli.jobs.waiting import wait_for_end


def main(directory: Path, first: Path, make_gate: MakeGate = open_gate) -> None:
    """Live the run to its end. The exit code says nothing; the record does."""
    stops = StopRequests()
    print_to_log()
    sys.stdin.buffer.read()
    _close_stdin()
    files = RunFiles(directory)
    if not settle(files, RunFiles(first)):
        return
    with _ledger(directory.parent.parent) as ledger, RunRecord.open(files, ledger, say) as record:
        try:
            _live(files, record, stops, make_gate)
        except BaseException as error:
            traceback.print_exc()
            if not record.state.is_over:
                record.move(RunState.FAILED, reason=f"the runner failed: {error!r}", exit_code=1)
            raise


def say(line: str) -> None:
    """One line for runner.log."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


@contextmanager
def _ledger(state: Path) -> Iterator[Ledger | None]:
    """None if it cannot be used: the run's events are enough, and others catch up with them."""
    try:
        ledger = Ledger.open(state, say)
    except LedgerError as error:
        say(f"{error.message}; the run goes on without it")
        yield None
        return
    with ledger:
        yield ledger


def _live(files: RunFiles, record: RunRecord, stops: StopRequests, make_gate: MakeGate) -> None:
    try:
        plugin, job = load_job(files, record.document)
        gate = make_gate(record, job, say)
    except DlroverError as error:
        reason = f"the plugin or the job cannot be loaded: {error.message}"
        record.move(RunState.FAILED, reason=reason, exit_code=ExitCode.USAGE)
        return
    life = Life(files, record, plugin, job, stops, say, gate)
    life.live(lambda: _wait_for_others(files, record))


def _wait_for_others(files: RunFiles, record: RunRecord) -> str | None:
    """Wait until the runs that this one comes after are over; why it may not start, or None."""
    for run_id in record.document.after:
        other = f"run {run_id}, which it comes after,"
        try:
            story = wait_for_end(RunFiles(files.path.parent / run_id))
        except FileNotFoundError:
            return f"{other} was removed"
        if story.state is RunState.FINISHED:
            continue
        # Nobody has looked at it since its owner has gone.
        return f"{other} is {story.state.value if story.state.is_over else RunState.LOST.value}"
    return None


def _close_stdin() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
