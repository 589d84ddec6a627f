"""The gate of one run: its runner asks for a place, waits until it has one, and gives it back.

There is no daemon. Whoever comes, ends or sees another end holds a session for all, under the lock
of the book, and wakes those that it concerns. Nobody looks again and again; only what happens
outside, such as a service that changes its mind, is asked for every ten seconds, by one for all.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace

from dlrover_cli.admission.book import Book, Entry, OpenBook, only_one, opened_book, read_book
from dlrover_cli.admission.ends import has_ends, is_lost
from dlrover_cli.admission.held_up import not_for_long, telling_who_holds
from dlrover_cli.admission.sessions import bell_of, hold_over
from dlrover_cli.admission.snapshot import DEFAULT_QUEUE
from dlrover_cli.admission.waking import Bell, Woken
from dlrover_cli.config.quantities import parse_quantity
from dlrover_cli.contracts.jobs import BaseJob
from dlrover_cli.errors import DlroverError
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.telemetry.process_identity import ProcessIdentity

_Interrupting = Callable[[], AbstractContextManager[None]]
_STOPPER = "dlrover_cli.admission.stop_lost"
_PATIENCE = 10.0
"""Seconds after which a session is held though nothing has happened here."""


class QueueGate:
    """Belongs to the runner of one run."""

    def __init__(
        self,
        record: RunRecord,
        job: BaseJob,
        say: Callable[[str], None],
        patience: float = _PATIENCE,
    ) -> None:
        document = record.document
        assert document.admission is not None
        self._record = record
        self._say = say
        self._patience = patience
        self._told_of_holder = ""
        self._state = record.files.path.parent.parent
        self._entry = Entry(
            document.run_id,
            document.name,
            document.admission,
            document.queue or DEFAULT_QUEUE,
            document.priority,
            document.submitted,
            {name: parse_quantity(text) for name, text in job.job_config.resources.items()},
            ProcessIdentity.own(),
        )

    def enter(self, interrupting: _Interrupting) -> None:
        bell = Bell(bell_of(self._state, self._entry.run_id))
        try:
            book = self._look(None, interrupting)
            while self._own(book).node is None:
                self._tell_why(self._own(book).reason)
                others = _living_owners(book, self._entry.run_id)
                woken = bell.wait(others, self._patience, interrupting)
                book = self._look(woken, interrupting)
        finally:
            bell.close()

    def why_it_makes_room(self) -> str:
        with suppress(OSError, DlroverError):
            return self._own(read_book(self._state)).reason or "asked to make room"
        return "asked to make room"

    def leave(self) -> None:
        """What cannot be told now is told by the next session: the book keeps it."""
        # After the end of this process the place is free in any case, once somebody looks.
        is_over = self._record.state.is_over
        waiting = (lambda: not_for_long(self._state)) if is_over else self._waiting
        try:
            with opened_book(self._state, waiting) as opened:
                entry = opened.book.entries.get(self._entry.run_id)
                if entry is not None:
                    self._note_running(entry)
                    opened.write(opened.book.without(self._entry.run_id))
                    self._hold(opened)
        except OSError as error:
            self._say(f"the place in the queue cannot be given back: {error.strerror}")
        except DlroverError as error:
            self._say(f"the place in the queue cannot be given back: {error.message}")

    def _note_running(self, entry: Entry) -> None:
        """If it waits again, it has the age that it had: it has not waited while it ran."""
        if entry.placed is not None:
            ran = max(0.0, time.time() - entry.placed)
            self._entry = replace(self._entry, ran=self._entry.ran + ran)

    def _look(self, woken: Woken | None, interrupting: _Interrupting) -> Book:
        """The book as it is now, after a session if there is reason for one."""
        self._stop_the_lost()
        try:
            with opened_book(self._state, lambda: self._waiting(interrupting)) as opened:
                is_new = self._entry.run_id not in opened.book.entries
                if is_new:
                    opened.write(opened.book.with_entry(self._entry))
                if is_new or self._is_due(opened.book, woken):
                    self._hold(opened)
                return opened.book
        except OSError as error:
            return self._without_book(
                f"the queue under {self._state} cannot be used: {error.strerror}"
            )
        except DlroverError as error:
            return self._without_book(error.message)

    def _is_due(self, book: Book, woken: Woken | None) -> bool:
        if has_ends(book, self._state):
            return True
        last = book.sessions.get(self._entry.config, 0.0)
        return woken is Woken.TIME_OUT and not 0 <= time.time() - last < self._patience / 2

    def _hold(self, opened: OpenBook) -> None:
        """Hold a session; if the file is wrong by now, all wait until somebody has mended it."""
        try:
            hold_over(opened, self._state, self._entry.config, self._say)
        except DlroverError as error:
            self._say(error.message)
            entry = opened.book.entries.get(self._entry.run_id)
            if entry is not None:
                opened.write(opened.book.with_entry(replace(entry, reason=error.message)))

    def _stop_the_lost(self) -> None:
        """Runs whose runners were killed hold their places until their jobs have ended, too.

        One of those that wait stops them, for all; the others are woken by what follows.
        """
        with suppress(OSError, DlroverError):
            tried: set[str] = set()
            while self._lost() - tried:
                with only_one(self._state / "queue.stopping") as is_mine:
                    if not is_mine:
                        return
                    lost = self._lost() - tried
                    for run_id in lost:
                        self._stop(run_id)
                    tried |= lost

    def _lost(self) -> set[str]:
        entries = read_book(self._state).of(self._entry.config)
        return {entry.run_id for entry in entries if entry.node and is_lost(entry)}

    def _stop(self, run_id: str) -> None:
        self._say(f"stopping run {run_id}, whose runner is gone: its place is needed")
        command = [sys.executable, "-P", "-m", _STOPPER, str(self._state), run_id]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)

    @contextmanager
    def _waiting(self, interrupting: _Interrupting = nullcontext) -> Iterator[None]:
        with telling_who_holds(self._state, self._tell_holder), interrupting():
            yield

    def _tell_holder(self, line: str) -> None:
        if line != self._told_of_holder:
            self._told_of_holder = line
            self._say(line)
        self._tell_why(line)

    def _own(self, book: Book) -> Entry:
        return book.entries.get(self._entry.run_id, self._entry)

    def _without_book(self, reason: str) -> Book:
        return Book({self._entry.run_id: replace(self._entry, reason=reason)})

    def _tell_why(self, reason: str) -> None:
        if reason and reason != self._record.story.reason:
            self._record.wait(reason)


def _living_owners(book: Book, but: str) -> list[ProcessIdentity]:
    """Their ends wake us. One that cannot be watched, or is lost already, is looked for later."""
    return [
        entry.owner
        for entry in book.entries.values()
        if entry.run_id != but and entry.owner.is_alive()
    ]
