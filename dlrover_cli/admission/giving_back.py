"""Gives back what nobody holds any more: `python -m dlrover_cli.admission.giving_back STATE`.

Runs that come and end do so in their sessions. If none does, whoever looks at the runs starts this
in a process of its own, which holds the session, and goes on without waiting for a service.
"""

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dlrover_cli.admission.book import Book, only_one, opened_book, read_book
from dlrover_cli.admission.ends import has_ended, with_ends
from dlrover_cli.errors import DlroverError

_PROGRAM = "dlrover_cli.admission.giving_back"
_PAUSE = 10.0
"""Seconds before a service is told again of what it has not taken."""


def start_giving_back(state: Path) -> None:
    """If there is a place to be given back; what is wrong with the book is no matter here."""
    with suppress(OSError, DlroverError):
        if files_with_ends(read_book(state), state, time.time()):
            subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, str(state)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


def main(state: Path) -> None:
    """What cannot be told stays in the book; nobody listens to why."""
    # Services take a while to load, and looking alone does without.
    from dlrover_cli.admission.sessions import hold_over

    while files_with_ends(read_book(state), state, time.time()):
        with only_one(state / "queue.giving") as is_mine:
            if not is_mine:
                return
            with opened_book(state) as opened:
                now = time.time()
                for file in files_with_ends(opened.book, state, now):
                    try:
                        hold_over(opened, state, file, lambda line: None)
                    except DlroverError:  # the file is wrong, and nobody waits to be told so
                        book = with_ends(opened.book, state)
                        opened.write(replace(book, sessions={**book.sessions, file: now}))


def files_with_ends(book: Book, state: Path, now: float) -> set[str]:
    """The extender files whose services have not heard of an end, and could be told now."""
    ended = {entry.config for entry in book.entries.values() if has_ended(entry, state)}
    owed = {entry.config for entry in book.ended}
    return ended | {file for file in owed if not 0 <= now - book.sessions.get(file, 0.0) < _PAUSE}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
