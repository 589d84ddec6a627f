"""One process and the ledger's file: transactions, threads, and a file that others moved away."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_cli.jobs.ledger_file import (
    LedgerBroken,
    making_sentences,
    open_in_memory,
    open_ledger_file,
    set_aside,
)

if TYPE_CHECKING:
    from sqlite3 import Connection


class LedgerConnection:
    """Connects when it is used. SQLite's errors leave it as LedgerError."""

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._on_problem = on_problem
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._opened_as: tuple[int, ...] = ()

    def close(self) -> None:
        """Have nothing open until the next use, if there is one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def writing(self) -> "Iterator[Connection]":
        """A transaction, with all other writers kept out from its beginning."""
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def connected(self) -> "Iterator[Connection]":
        """For reading. A broken file is moved aside, and whoever comes next finds an empty one."""
        with self._lock:
            try:
                with making_sentences(self._path):
                    yield self._current()
            except LedgerBroken as error:
                self.close()
                self._on_problem(set_aside(self._path, error))
                raise

    def _current(self) -> "Connection":
        """The connection of this process to the file that is there now.

        A run may last for days; meanwhile somebody may have moved the file away.
        """
        if self._connection is not None and self._opened_as != self._file():
            if self._opened_as[0] != os.getpid():
                _of_a_parent.append(self._connection)
                self._connection = None
            self.close()
        if self._connection is None:
            self._connection = open_ledger_file(self._path, self._on_problem)
            self._opened_as = self._file()
        return self._connection

    def _file(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return (os.getpid(),)
        return os.getpid(), found.st_dev, found.st_ino


class MemoryConnection(LedgerConnection):
    """For when the file cannot be used: it is this process's alone, and empty after `close`."""

    def _current(self) -> "Connection":
        if self._connection is None:
            self._connection = open_in_memory()
        return self._connection


# Of a process that has forked: closed here, they would be closed in its name.
_of_a_parent: "list[Connection]" = []
