"""Brings the ledger back to what the run directories say, and finds the runs whose process is gone.

Cheap when there is nothing to do: the names of the directories are compared with the rows, and only
the files of runs that may still have something to tell are read.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dlrover_cli.contracts.run_states import ENDED, RunState
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.journal import Bookmark, read_on, read_story
from dlrover_cli.jobs.ledger import Ledger, UnknownRun, may_live, say_on_stderr
from dlrover_cli.jobs.ledger_file import LedgerBroken, LedgerError
from dlrover_cli.jobs.ledger_rows import document_of, row_of
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles, read_job_document
from dlrover_cli.jobs.sizes import size_of
from dlrover_cli.jobs.staging import discard
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity

GRACE_SECONDS = 10.0
"""A run that nobody owns yet is left alone for so long, though its submitter has ended."""

MUCH = 1 << 16
"""So many bytes of events take longer to read than to keep a bookmark."""


def heal(
    ledger: Ledger,
    state: Path,
    *,
    on_problem: Callable[[str], None] = say_on_stderr,
    now: Callable[[], float] = time.time,
) -> None:
    """Runs without a row get one, rows catch up with their events, and what was left is LOST.

    Only processes of this host are judged. A ledger that cannot be written stays as it is, which
    costs a line; one that cannot be read raises LedgerError.
    """
    try:
        _heal(ledger, state, on_problem, now)
    except LedgerBroken:  # and moved aside: now there is an empty one
        _heal(ledger, state, on_problem, now)


def _heal(
    ledger: Ledger, state: Path, on_problem: Callable[[str], None], now: Callable[[], float]
) -> None:
    names = _run_directories(state / "runs")
    known = ledger.run_ids()
    try:
        _adopt(ledger, state, sorted(names - known))
        for run_id in known - names:
            _forget_if_gone(ledger, run_id)
        _catch_up(ledger, state, on_problem, now)
    except LedgerBroken:
        raise
    except LedgerError as error:
        on_problem(f"{error.message}; what it shows may be old")


def is_abandoned(story: Story, submitted: float, now: float) -> bool:
    """Whether nobody is left who could bring the run to its end.

    ``submitted`` is what its document says, which is written before the first event.
    """
    if story.state.is_over:
        return False
    if story.owner is not None:
        return not may_live(story.owner)
    if story.submitter is not None and may_live(story.submitter):
        return False
    return now - submitted > GRACE_SECONDS


def _run_directories(runs: Path) -> set[str]:
    """Their names; those that begin with a dot are being made or taken away."""
    try:
        with os.scandir(runs) as entries:
            return {
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return set()


def _adopt(ledger: Ledger, state: Path, run_ids: Sequence[str]) -> None:
    rows, stories = [], {}
    for run_id in run_ids:
        files = RunFiles.of(state, run_id)
        document, story = _document(files), _story(files)
        if document is not None and document.run_id == run_id and story is not None:
            rows.append(row_of(document, story, files.path))
            stories[run_id] = story
        elif story is not None and not files.job.exists():
            _discard_if_left(files, story)
    if rows:
        ledger.add_all(rows)
        _settle(ledger, state, stories)


def _discard_if_left(files: RunFiles, story: Story) -> None:
    """Take away what a submitter has left that was killed before its runs existed."""
    makers = _known(story.submitter, story.owner)
    if any(map(may_live, makers)) or not (makers or _is_old_and_wordless(files.path)):
        return
    if not files.job.exists():  # and from now on nobody is left who could let it exist
        discard(files)


def _is_old_and_wordless(directory: Path) -> bool:
    """Of a submitter that was killed before its first word."""
    with suppress(OSError):
        is_old = time.time() - os.stat(directory).st_mtime > 60
        return is_old and not any(entry.stat().st_size for entry in os.scandir(directory))
    return False


def _forget_if_gone(ledger: Ledger, run_id: str) -> None:
    with suppress(UnknownRun):
        row = ledger.row(run_id)
        if not row.directory.exists() and (row.owner is None or not may_live(row.owner)):
            ledger.remove(run_id)


def _catch_up(
    ledger: Ledger, state: Path, on_problem: Callable[[str], None], now: Callable[[], float]
) -> None:
    stories, bookmarks = {}, ledger.bookmarks()
    for row in ledger.unsettled():
        files = RunFiles(row.directory)
        story = _read_on(files, ledger, bookmarks.get(row.run_id))
        if story is None:
            continue
        is_lost = is_abandoned(story, row.submitted, now())
        if is_lost or story.steps > row.steps:
            document = _document(files) or document_of(row)
            ledger.keep(row_of(document, story, files.path))
            if is_lost:
                story = _lost(files, document, ledger, on_problem, now)
        stories[row.run_id] = story
    _settle(ledger, state, stories)


def _settle(ledger: Ledger, state: Path, stories: Mapping[str, Story]) -> None:
    settled = [
        (run_id, story.steps, size_of(RunFiles.of(state, run_id).path))
        for run_id, story in stories.items()
        if _is_settled(story)
    ]
    if settled:
        ledger.settle(settled)


def _document(files: RunFiles) -> JobDocument | None:
    try:
        return read_job_document(files.job)
    except LaunchError:
        return None


def _story(files: RunFiles) -> Story | None:
    try:
        return read_story(files.events)
    except FileNotFoundError:
        return Story()
    except OSError:
        return None


def _read_on(files: RunFiles, ledger: Ledger, text: str | None) -> Story | None:
    """The story of a run that may have told much; if it has, the next one reads on from here."""
    before = Bookmark() if text is None else Bookmark.from_text(text)
    try:
        now = read_on(files.events, before)
    except FileNotFoundError:
        return Story()
    except OSError:
        return None
    if abs(now.offset - before.offset) > MUCH:
        ledger.set_bookmark(files.run_id, now.to_text())
    return now.story


def _lost(
    files: RunFiles,
    document: JobDocument,
    ledger: Ledger,
    on_problem: Callable[[str], None],
    now: Callable[[], float],
) -> Story:
    with RunRecord(files, ledger, document, on_problem) as record:
        record.move(
            RunState.LOST,
            reason=_how_lost(record.story),
            when=lambda story: is_abandoned(story, document.submitted, now()),
        )
        return record.story


def _how_lost(story: Story) -> str:
    process = story.owner or story.submitter
    if process is None:
        return "nobody took it over"
    if process.boot_id != ProcessIdentity.own().boot_id:
        return f"{process.host} was restarted"
    if story.owner is None:
        return f"process {process.pid} ended while it submitted the run"
    return f"process {process.pid} is gone without a word"


def _is_settled(story: Story) -> bool:
    """Whether nobody is left who could write to this story before the ledger is told of him."""
    if story.state in ENDED and story.is_cleaned:
        return True
    writers = _known(story.owner, story.cleaner)
    return story.state.is_over and not any(map(may_live, writers))


def _known(*processes: ProcessIdentity | None) -> list[ProcessIdentity]:
    return [each for each in processes if each is not None]
