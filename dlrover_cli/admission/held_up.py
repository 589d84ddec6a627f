"""Another process holds the book for longer than a session should take: who it is, in one line.

A process that was suspended in a session keeps the book, and nobody may take it away: what it has
begun to tell the services it goes on with as soon as it is resumed. So those who wait say who it
is, and a person decides; and those whose run is over do not wait for it.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlrover_cli.admission.book import Holder, holder_of, read_book
from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.words import moment

_PATIENCE = 5.0
"""Seconds that a session may take before it is worth a word."""
_LONG = 60.0
"""Seconds after which it may just as well be suspended."""


class HeldUp(LaunchError):
    """The book is not to be had for now."""


@contextmanager
def telling_who_holds(state: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """For as long as the block waits for the book; ``tell`` is called in a thread of its own."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_PATIENCE):
            holder = holder_of(state)
            if holder is not None and time.time() - holder.since >= _PATIENCE:
                tell(_in_words(holder, state))

    thread = threading.Thread(target=watch, name="held-up", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def not_for_long(state: Path) -> Iterator[None]:
    """Raise HeldUp out of a block that waits in the main thread for one who may never go on.

    A signal looks after that, since nothing else ends the waiting for a lock.
    """

    def look(*_: object) -> None:
        holder = holder_of(state)
        if holder is None:
            return
        if holder.process.is_suspended() or time.time() - holder.since >= _LONG:
            raise HeldUp(_in_words(holder, state))

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _in_words(holder: Holder, state: Path) -> str:
    pid = holder.process.pid
    who = f"process {pid}{_run_of(holder, state)}"
    give_up = f"`kill -9 {pid}` gives it up"
    if holder.process.is_suspended():
        how = f"`kill -CONT {pid}` lets it go on, {give_up}"
        return f"{who} is suspended and holds all queues: {how}"
    return f"{who} holds all queues since {moment(holder.since)}: wait for it, or {give_up}"


def _run_of(holder: Holder, state: Path) -> str:
    with suppress(OSError, DlroverError):
        for entry in read_book(state).entries.values():
            if entry.owner == holder.process:
                return f", the runner of {entry.run_id},"
    return ""
