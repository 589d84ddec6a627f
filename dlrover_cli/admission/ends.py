"""Runs in the book whose runners are gone without a word, and which of them hold no place now."""

from pathlib import Path

from dlrover_cli.admission.book import Book, Entry
from dlrover_cli.contracts.run_states import ENDED
from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.ledger import may_live
from dlrover_cli.jobs.run_files import RunFiles


def is_lost(entry: Entry) -> bool:
    """Whether its runner is gone, and has not said that the run is over."""
    return not may_live(entry.owner)


def has_ended(entry: Entry, state: Path) -> bool:
    """Whether it is lost, and no job of it may still run and hold the place."""
    return is_lost(entry) and (entry.node is None or _is_over(state, entry))


def with_ends(book: Book, state: Path) -> Book:
    """The book without those that have ended; their places are free, and nobody was told yet."""
    for entry in book.entries.values():
        if has_ended(entry, state):
            book = book.without(entry.run_id)
    return book


def has_ends(book: Book, state: Path) -> bool:
    """Whether a session would find any."""
    return any(has_ended(entry, state) for entry in book.entries.values())


def _is_over(state: Path, entry: Entry) -> bool:
    try:
        return read_story(RunFiles.of(state, entry.run_id).events).state in ENDED
    except FileNotFoundError:
        return True  # and was removed
