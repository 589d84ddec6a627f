"""A session over the book: what has ended is given back, who may start gets a place, all are told.

Called with the book's lock held. What it decides is in the book when it returns; the runners that
it concerns are woken and read it there.
"""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from dlrover_cli.admission.book import Book, Entry, OpenBook
from dlrover_cli.admission.ends import with_ends
from dlrover_cli.admission.snapshot import snapshot, task_of
from dlrover_cli.admission.waking import ring
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.stop_requests import MAKE_ROOM
from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.extenders import opened_extenders
from dlrover_cli.scheduling.kept_places import KeptPlaces
from dlrover_cli.scheduling.model import TaskView
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import Indifferent, Refusal
from dlrover_cli.scheduling.reading import read_extender_file
from dlrover_cli.scheduling.session import Decisions, hold_session


def hold_over(opened: OpenBook, state: Path, config_file: str, say: Callable[[str], None]) -> None:
    """Hold a session for the runs of one extender file. Raises UsageError if that is wrong."""
    config = read_extender_file(Path(config_file))
    before = opened.book
    opened.write(with_ends(before, state))
    kept = KeptPlaces(state, config.extenders, say)
    lost = kept.lost()
    released = [task_of(entry) for entry in opened.book.ended if entry.config == config_file]
    view = snapshot(opened.book, config_file, config, secrets.token_hex(4), time.time())
    with opened_extenders(config.extenders, say) as extenders:
        panel = Panel([Keeper(opened), *built_ins()], extenders, say)
        decisions = hold_session(view, panel, config.actions, released=[*lost, *released])
    kept.forget(task for task in lost if task not in decisions.unheard)
    places = {task.place for task in released}
    heard = places - {task.place for task in decisions.unheard}
    owed = [task for task in decisions.unheard if task not in lost and task.place not in places]
    after = _with_decisions(opened.book, decisions, config_file).heard(heard)
    opened.write(_with_owed(after, owed))
    for eviction in decisions.evictions:
        opened.book.entries[eviction.job.uid].owner.signal(MAKE_ROOM)
    for entry in _concerned(before, opened.book):
        ring(bell_of(state, entry.run_id))


def bell_of(state: Path, run_id: str) -> Path:
    return RunFiles.of(state, run_id).path / "wake"


class Keeper(Indifferent):
    """Writes a place into the book before the others hear of it, and out after they have."""

    def __init__(self, opened: OpenBook) -> None:
        self._opened = opened

    def allocated(self, task: TaskView) -> Refusal | None:
        book = self._opened.book
        entry = replace(
            book.entries[task.job],
            node=task.node,
            place=task.place,
            placed=time.time(),
            reason="",
        )
        try:
            self._opened.write(book.with_entry(entry))
        except OSError as error:
            return Refusal(f"the place cannot be written down: {error.strerror}")
        return None

    def deallocated(self, task: TaskView) -> None:
        book = self._opened.book
        entry = book.entries.get(task.job)
        if entry is not None and entry.place == task.place:
            self._opened.write(book.with_entry(replace(entry, node=None, place="", placed=None)))


def _with_decisions(book: Book, decisions: Decisions, config_file: str) -> Book:
    for run_id in decisions.enqueued:
        book = book.with_entry(replace(book.entries[run_id], is_enqueued=True))
    for run_id, why in (decisions.waiting or {}).items():
        book = book.with_entry(replace(book.entries[run_id], reason=why))
    for eviction in decisions.evictions:
        victim = book.entries[eviction.job.uid]
        book = book.with_entry(replace(victim, is_releasing=True, reason=eviction.reason))
        evictor = book.entries[eviction.evictor.uid]
        book = book.with_entry(replace(evictor, is_owed_room=True))
    return replace(book, sessions={**book.sessions, config_file: time.time()})


def _with_owed(book: Book, tasks: Iterable[TaskView]) -> Book:
    """Places that were given and taken back at once, and not everybody has heard the latter."""
    entries = ((book.entries[task.job], task) for task in tasks)
    owed = (replace(entry, node=task.node, place=task.place) for entry, task in entries)
    return replace(book, ended=(*book.ended, *owed))


def _concerned(before: Book, after: Book) -> Iterable[Entry]:
    """Those that wait for a place and have got one, or another reason."""
    for entry in after.entries.values():
        old = before.entries.get(entry.run_id)
        if old is not None and old.node is None and old != entry:
            yield entry
