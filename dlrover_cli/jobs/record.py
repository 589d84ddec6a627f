"""The one writer of a run's story: the event first, then the ledger.

Whoever is killed between the two leaves a row that is behind, and `heal` lets it catch up. A ledger
that cannot be written costs a line, and never the run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from dlrover_cli.contracts.run_states import IllegalTransition, RunState
from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.jobs.journal import LifeJournal
from dlrover_cli.jobs.ledger import Ledger, RowIsBehind, UnknownRun, may_live
from dlrover_cli.jobs.ledger_rows import RunRow, document_of, row_of
from dlrover_cli.jobs.run_files import JobDocument, RunFiles, read_job_document
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import write_json_atomically
from dlrover_cli.words import bounded


class RunRecord:
    """Several processes may have one of the same run; what one writes, the others see.

    With ``ledger`` None only the events are written.
    """

    def __init__(
        self,
        files: RunFiles,
        ledger: Ledger | None,
        document: JobDocument,
        on_problem: Callable[[str], None],
    ) -> None:
        self.files = files
        self.document = document
        self._ledger = ledger
        self._on_problem = on_problem
        self._said: set[str] = set()
        self._journal = LifeJournal(files.events, document.run_id, on_problem)

    @classmethod
    def create(
        cls,
        files: RunFiles,
        ledger: Ledger | None,
        document: JobDocument,
        on_problem: Callable[[str], None],
    ) -> Self:
        """Begin the story of a new run in its directory, which is there. Raises LaunchError."""
        try:
            write_json_atomically(files.job, document.to_json())
        except OSError as error:
            raise LaunchError(
                f"cannot write {files.job}: {error.strerror}",
                hint="set XDG_STATE_HOME to a writable directory with free space",
            ) from error
        record = cls(files, ledger, document, on_problem)
        record._tell("submitted", by=ProcessIdentity.own().to_json())
        return record

    @classmethod
    def open(
        cls, files: RunFiles, ledger: Ledger | None, on_problem: Callable[[str], None]
    ) -> Self:
        """Go on with the story of a run, which the ledger is told as far as it has come.

        Raises LaunchError if its job.json cannot be read.
        """
        record = cls(files, ledger, read_job_document(files.job), on_problem)
        record._in_ledger(lambda ledger: ledger.keep(record.row))
        return record

    @classmethod
    def reopen(cls, files: RunFiles, ledger: Ledger, on_problem: Callable[[str], None]) -> Self:
        """As `open`; if its job.json cannot be read, what the ledger knows has to do."""
        try:
            return cls.open(files, ledger, on_problem)
        except LaunchError as error:
            on_problem(f"{error.message}; what the ledger knows of the run has to do")
        return cls(files, ledger, document_of(ledger.row(files.run_id)), on_problem)

    @property
    def story(self) -> Story:
        """As it was when this process last looked or wrote."""
        return self._journal.story

    @property
    def state(self) -> RunState:
        return self._journal.story.state

    @property
    def row(self) -> RunRow:
        """What the ledger should say."""
        return row_of(self.document, self._journal.story, self.files.path)

    def own(self, owner: ProcessIdentity, *, when: Callable[[Story], bool] | None = None) -> bool:
        """From now on the run is the matter of this process; False if ``when`` is against it."""
        return self._tell("owned", when, owner=owner.to_json())

    def move(
        self,
        to: RunState,
        *,
        reason: str = "",
        exit_code: int | None = None,
        when: Callable[[Story], bool] | None = None,
    ) -> bool:
        """Change the state. Raises IllegalTransition, and then nothing was written.

        False if ``when``, asked while nobody else writes, says that there is nothing to do.
        """
        with self._journal.alone():
            before = self._journal.story
            if when is not None and not when(before):
                return False
            if not before.state.may_become(to):
                raise IllegalTransition(self.document.run_id, before.state, to)
            self._journal.append(
                "state",
                **{"from": before.state.value, "to": to.value},
                reason=bounded(reason),
                exit_code=exit_code,
            )
            row = self.row
        self._in_ledger(lambda ledger: _step(ledger, row))
        return True

    def wait(self, reason: str) -> None:
        """Say why the run, which is PENDING, does not start yet."""
        self._tell("waiting", lambda story: story.state is RunState.PENDING, reason=reason)

    def note(self, kind: str, **data: Any) -> None:
        """Write a remark, which changes nothing."""
        with self._journal.alone():
            self._journal.append(kind, **data)

    def refresh(self) -> Story:
        """Look at what others have written."""
        with self._journal.alone():
            return self._journal.story

    @contextmanager
    def cleaning(self) -> Iterator[bool]:
        """Whether this process has to clean up now; done when the block is left without an error.

        No two do it at once, and none after it is done. If the one that was about to do it has
        died, or failed, the next one has to.
        """
        if not self._claim():
            yield False
            return
        try:
            yield True
        except BaseException as error:
            self._in_ledger(lambda ledger: ledger.release_cleanup(self.document.run_id))
            self._tell("cleaning_failed", reason=f"{type(error).__name__}: {error}")
            raise
        self._tell("cleaned")

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _claim(self) -> bool:
        """By the events; and by the ledger, which has locks where the files have none."""
        by = ProcessIdentity.own()
        if not self._tell("cleaning", _needs_cleaner, by=by.to_json()):
            return False
        claimed = self._in_ledger(lambda ledger: ledger.claim_cleanup(self.document.run_id, by))
        return claimed is not False

    def _tell(self, kind: str, when: Callable[[Story], bool] | None = None, /, **data: Any) -> bool:
        with self._journal.alone():
            if when is not None and not when(self._journal.story):
                return False
            self._journal.append(kind, **data)
            row = self.row
        self._in_ledger(lambda ledger: ledger.keep(row))
        return True

    def _in_ledger(self, act: Callable[[Ledger], Any]) -> Any:
        if self._ledger is None:
            return None
        try:
            return act(self._ledger)
        except DlroverError as error:
            if error.message not in self._said:
                self._said.add(error.message)
                self._on_problem(f"{error.message}; run {self.document.run_id} goes on without it")
            return None


def _needs_cleaner(story: Story) -> bool:
    if story.is_cleaned:
        return False
    return story.cleaner is None or not may_live(story.cleaner)


def _step(ledger: Ledger, row: RunRow) -> None:
    at = row.ended if row.ended is not None else row.started
    try:
        ledger.transition(
            row.run_id,
            row.state,
            reason=row.reason,
            exit_code=row.exit_code,
            at=at,
            step=row.steps,
        )
    except (UnknownRun, IllegalTransition, RowIsBehind):
        ledger.keep(row)
