"""The file of the ledger: made private and in one piece, opened with the journal its disk allows.

SQLite errors leave here as sentences. A file that is no database any more is moved aside: the
ledger is an index over the run directories, and `heal` builds it anew from them.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.file_systems import is_on_network

if TYPE_CHECKING:
    from sqlite3 import Connection, Error

SCHEMA_VERSION = 1
BUSY_SECONDS = 10.0
"""How long to wait for other processes, each of which writes for some milliseconds."""

_COLUMNS = {
    "run_id": "TEXT PRIMARY KEY",
    "name": "TEXT NOT NULL",
    "platform": "TEXT NOT NULL",
    "engine": "TEXT NOT NULL",
    "state": "TEXT NOT NULL",
    "reason": "TEXT NOT NULL",
    "exit_code": "INTEGER",
    "submission": "TEXT NOT NULL",
    "after": "TEXT NOT NULL",
    "queue": "TEXT",
    "priority": "INTEGER NOT NULL",
    "owner": "TEXT",
    "submitted": "REAL NOT NULL",
    "started": "REAL",
    "ended": "REAL",
    "size": "INTEGER",
    "is_cleaned": "INTEGER NOT NULL",
    "steps": "INTEGER NOT NULL",
    "cleaner": "TEXT",
    "is_settled": "INTEGER NOT NULL DEFAULT 0",
    "bookmark": "TEXT",
}
_SCHEMA = f"""
CREATE TABLE runs ({", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())});
CREATE INDEX runs_by_time ON runs (submitted);
CREATE INDEX runs_by_name ON runs (name, submitted);
CREATE INDEX unsettled_runs ON runs (run_id) WHERE is_settled = 0
"""


class LedgerError(LaunchError):
    """The ledger cannot be used; what the runs have recorded is not touched by that."""


class LedgerOutOfReach(LedgerError):
    """Its disk is full, or read-only, or fails; the run directories may be read all the same."""


class LedgerBroken(LedgerError):
    """The file is no database, or not one of ours. It is built anew when it is next healed."""


def open_ledger_file(path: Path, on_problem: Callable[[str], None]) -> "Connection":
    """Connect to the ledger, making it if there is none. Raises LedgerError."""
    try:
        return _opened(path)
    except LedgerBroken as error:
        on_problem(set_aside(path, error))
    return _opened(path)


def open_in_memory() -> "Connection":
    """An empty ledger that nobody else sees and that leaves nothing behind."""
    from sqlite3 import connect

    connection = connect(":memory:", isolation_level=None, check_same_thread=False)
    _make_tables(connection)
    return connection


def set_aside(path: Path, error: LedgerBroken) -> str:
    """Move a broken ledger away, unless another process has done so; says what was done."""
    aside = path.with_name(f"{path.name}.broken-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    with making_sentences(path), _locked(path, fcntl.LOCK_EX):
        if _is_sound(path):
            return f"{error.message}; another process has replaced it"
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return f"{error.message}; it was moved to {aside.name} and is built anew"


@contextmanager
def making_sentences(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into a LedgerError."""
    from sqlite3 import Error

    try:
        yield
    except Error as error:
        raise _sentence(path, error) from error
    except OSError as error:
        raise LedgerOutOfReach(
            f"the ledger {path} cannot be used: {error.strerror}", hint=_HINT
        ) from error


_HINT = "set XDG_STATE_HOME to a writable directory with free space"


def _opened(path: Path) -> "Connection":
    with making_sentences(path):
        with _kept_in_place(path):
            if path.exists():
                _make_private(path.parent, 0o700)
                _refuse_other_kinds(path)
                _make_private(path, 0o600)
                return _connected(path)
        return _made(path)


def _refuse_other_kinds(path: Path) -> None:
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise LedgerBroken(f"the ledger {path} is broken (it is {what})")


def _made(path: Path) -> "Connection":
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_private(path.parent, 0o700)
    with _locked(path, fcntl.LOCK_EX):
        # SQLite gives the mode of this file to those that it puts beside it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return _connected(path)


def _make_private(path: Path, mode: int) -> None:
    """Some file systems of other systems know no modes."""
    found = path.stat()
    if found.st_mode & 0o077 and found.st_uid == os.getuid():
        with suppress(OSError):
            path.chmod(mode)


def _connected(path: Path) -> "Connection":
    from sqlite3 import connect

    connection = connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_sound(path: Path) -> bool:
    if not path.exists():
        return True  # gone already; whoever needs it makes a new one
    try:
        _refuse_other_kinds(path)
        with making_sentences(path), closing(_connected(path)) as connection:
            connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM runs LIMIT 0")
            return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    except LedgerBroken:
        return False


def _prepare(connection: "Connection", path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {path} was written by a newer version of dlrover-cli "
            f"(schema {version}, this one knows {SCHEMA_VERSION})",
            hint="use that version, or set XDG_STATE_HOME to another directory",
        )
    _choose_journal(connection, path)
    if version == 0:
        _make_tables(connection)


def _make_tables(connection: "Connection") -> None:
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:  # still: another process may have been faster
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _choose_journal(connection: "Connection", path: Path) -> None:
    """Write-ahead needs memory that all processes share: not between the hosts of a network.

    There, writers would also hold each other up for as long as a server takes to reach its disk. A
    power cut may then cost the ledger, and it is built anew.
    """
    wanted, syncs = ("delete", "OFF") if is_on_network(path.parent) else ("wal", "NORMAL")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != wanted:
        connection.execute(f"PRAGMA journal_mode = {wanted}")
    connection.execute(f"PRAGMA synchronous = {syncs}")


@contextmanager
def _kept_in_place(path: Path) -> Iterator[None]:
    """Nobody moves the file away meanwhile: SQLite would take the next one's journal for its own.

    Where this cannot be promised, as on a read-only disk, nobody is likely to move it.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(_locked(path, fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    """A lock beside those of SQLite; it goes with the process."""
    lock = os.open(
        path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


def _sentence(path: Path, error: "Error") -> LedgerError:
    import sqlite3

    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = str(error)
    # SQLITE_ERROR: the tables are others than ours.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return LedgerBroken(
            f"the ledger {path} is broken ({text})",
            hint="try again: it is built anew from the run directories",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerError(
            f"the ledger {path} was locked by others for more than {BUSY_SECONDS:g} s",
            hint="see which process has it open with: fuser -v " + str(path),
        )
    if not os.access(path.parent, os.W_OK):  # which SQLite puts in other words each time
        text = "its directory cannot be written"
    return LedgerOutOfReach(f"the ledger {path} cannot be used: {text}", hint=_HINT)
