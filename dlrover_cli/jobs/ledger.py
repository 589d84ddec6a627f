"""All runs of a user, one row each: an index over the run directories, shared by many processes.

The events of a run are the truth. A row knows how many steps of them it has seen, so that the same
step told twice (by the run itself and by whoever healed the ledger meanwhile) is taken once, and
none is taken back by a reader that was slow.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.jobs.ledger_file import LedgerBroken, making_sentences, open_ledger_file, set_aside
from dlrover_cli.jobs.ledger_rows import (
    COLUMNS,
    RunRow,
    from_columns,
    process_of,
    process_text,
    to_columns,
)
from dlrover_cli.jobs.states import ENDED, IllegalTransition, RunState
from dlrover_cli.jobs.story import times_of
from dlrover_cli.telemetry.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["Ledger", "RowIsBehind", "RunRow", "UnknownRun"]

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM runs"
_ACTIVE = tuple(state for state in RunState if not state.is_over)


class UnknownRun(DlroverError):
    """There is no row for this run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id}", hint="see `dlrover-job list`")


class RowIsBehind(DlroverError):
    """The row has missed a step of its run before this one."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the ledger has missed something of run {run_id}")


class Ledger:
    """Open it once per process; any thread may use it. Every method may raise LedgerError."""

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._on_problem = on_problem
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._opened_as: tuple[int, ...] = ()

    @classmethod
    def open(cls, state: Path, on_problem: Callable[[str], None] | None = None) -> Self:
        """The ledger of a state directory, made if there is none.

        One that is broken is moved aside, which ``on_problem`` is told in one line.
        """
        ledger = cls(state / "ledger.db", on_problem or _say_nothing)
        with ledger._connected():
            return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Have nothing open until the next use, if there is one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def add(self, row: RunRow) -> None:
        """Put in a new run. One that is there already stays: it has told its story itself."""
        self.add_all([row])

    def add_all(self, rows: Iterable[RunRow]) -> None:
        with self._writing() as connection:
            connection.executemany(f"{_INSERT} ON CONFLICT DO NOTHING", map(to_columns, rows))

    def keep(self, row: RunRow) -> None:
        """Let the run be what its events say, unless the ledger has seen more of them already."""
        with self._writing() as connection:
            connection.execute(_UPSERT, to_columns(row))

    def transition(
        self,
        run_id: str,
        to: RunState,
        *,
        reason: str = "",
        exit_code: int | None = None,
        at: float | None = None,
        step: int | None = None,
    ) -> None:
        """Let a run change its state. Raises UnknownRun, IllegalTransition or RowIsBehind.

        ``step`` is the number of this step in the run's story. One that the row has seen already
        is the same one told twice, and nothing happens. Without a number it is a new one: a run
        cannot become FINISHED twice.
        """
        with self._writing() as connection:
            row = self._row(connection, run_id)
            if step is not None and step <= row.steps:
                return
            if step is not None and step > row.steps + 1:
                raise RowIsBehind(run_id)
            if not row.state.may_become(to):
                raise IllegalTransition(run_id, row.state, to)
            started, ended = times_of(to, time.time() if at is None else at, row.started)
            is_cleaned = row.is_cleaned and to is not RunState.PENDING
            connection.execute(
                "UPDATE runs SET state = ?, reason = ?, exit_code = ?, started = ?, ended = ?, "
                "is_cleaned = ?, steps = ?, is_settled = ? WHERE run_id = ?",
                (
                    to.value,
                    reason,
                    exit_code,
                    started,
                    ended,
                    is_cleaned,
                    row.steps + 1,
                    is_cleaned and to in ENDED,
                    run_id,
                ),
            )

    def set_owner(self, run_id: str, owner: ProcessIdentity) -> None:
        self._update(run_id, "owner = ?, is_settled = 0", process_text(owner))

    def set_cleaned(self, run_id: str) -> None:
        self._update(run_id, "is_cleaned = 1, cleaner = NULL")

    def set_size(self, run_id: str, size: int) -> None:
        """Remember how many bytes the files of a run take."""
        self._update(run_id, "size = ?", size)

    def claim_cleanup(self, run_id: str, by: ProcessIdentity) -> bool:
        """Whether ``by`` is the one to clean up: nobody has, and nobody who lives is about to."""
        with self._writing() as connection:
            row = self._row(connection, run_id)
            (text,) = connection.execute(
                "SELECT cleaner FROM runs WHERE run_id = ?", (run_id,)
            ).fetchone()
            claimant = process_of(text)
            if row.is_cleaned or (claimant is not None and may_live(claimant)):
                return False
            connection.execute(
                "UPDATE runs SET cleaner = ?, is_settled = 0 WHERE run_id = ?",
                (process_text(by), run_id),
            )
            return True

    def release_cleanup(self, run_id: str) -> None:
        """Let somebody else try."""
        self._update(run_id, "cleaner = NULL")

    def settle(self, run_ids: Iterable[str]) -> None:
        """Nothing more will be told by these runs: healing need not look at them again."""
        with self._writing() as connection:
            connection.executemany(
                "UPDATE runs SET is_settled = 1 WHERE run_id = ?", [(each,) for each in run_ids]
            )

    def remove(self, run_id: str) -> None:
        """Forget a run; one that is not there is no error."""
        with self._writing() as connection:
            connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))

    def row(self, run_id: str) -> RunRow:
        """Raises UnknownRun."""
        with self._connected() as connection:
            return self._row(connection, run_id)

    def rows(
        self, limit: int | None = None, states: Iterable[RunState] | None = None
    ) -> list[RunRow]:
        """The newest first."""
        where, values = "", []
        if states is not None:
            values = [state.value for state in states]
            where = f" WHERE state IN ({', '.join('?' * len(values))})"
        return self._selected(
            f"{where} ORDER BY submitted DESC, run_id DESC LIMIT ?",
            *values,
            -1 if limit is None else limit,
        )

    def active(self) -> list[RunRow]:
        """Those that are not over."""
        return self.rows(states=_ACTIVE)

    def unsettled(self) -> list[RunRow]:
        """Those whose files may know more than their rows."""
        return self._selected(" WHERE is_settled = 0")

    def run_ids(self) -> set[str]:
        with self._connected() as connection:
            return {run_id for (run_id,) in connection.execute("SELECT run_id FROM runs")}

    def total_size(self) -> int:
        """Of all runs that somebody has measured, in bytes."""
        with self._connected() as connection:
            (size,) = connection.execute("SELECT SUM(size) FROM runs").fetchone()
            return size or 0

    def find(self, text: str) -> RunRow:
        """The run that a person means: its id, the beginning of it, or its job's latest run.

        Raises UsageError with what is near.
        """
        exact = self._selected(" WHERE run_id = ?", text)
        if exact:
            return exact[0]
        begun = self._selected(
            " WHERE run_id >= ? AND run_id < ? ORDER BY submitted DESC LIMIT ?",
            text,
            text + chr(0x10FFFF),
            _SHOWN + 1,
        )
        if len(begun) == 1 and text:
            return begun[0]
        named = self._selected(" WHERE name = ? ORDER BY submitted DESC LIMIT 1", text)
        if named:
            return named[0]
        raise self._not_found(text, begun)

    def _not_found(self, text: str, begun: Sequence[RunRow]) -> UsageError:
        if begun:
            names = [f"{row.run_id} ({row.name})" for row in begun[:_SHOWN]]
            more = ", …" if len(begun) > _SHOWN else ""
            return UsageError(
                f"{text!r} is the beginning of several runs: {', '.join(names)}{more}",
                hint="give more of the run id",
            )
        from difflib import get_close_matches

        recent = self.rows(limit=1000)
        known = dict.fromkeys(name for row in recent for name in (row.run_id, row.name))
        near = get_close_matches(text, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `dlrover-job list`"
        return UsageError(f"there is no run or job {text!r}", hint=hint)

    def _selected(self, clause: str, *values: Any) -> list[RunRow]:
        with self._connected() as connection:
            return [from_columns(each) for each in connection.execute(_SELECT + clause, values)]

    def _row(self, connection: "Connection", run_id: str) -> RunRow:
        values = connection.execute(f"{_SELECT} WHERE run_id = ?", (run_id,)).fetchone()
        if values is None:
            raise UnknownRun(run_id)
        return from_columns(values)

    def _update(self, run_id: str, changes: str, *values: Any) -> None:
        with self._writing() as connection:
            done = connection.execute(
                f"UPDATE runs SET {changes} WHERE run_id = ?", (*values, run_id)
            )
            if done.rowcount == 0:
                raise UnknownRun(run_id)

    @contextmanager
    def _writing(self) -> "Iterator[Connection]":
        """A transaction, with all other writers kept out from its beginning."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> "Iterator[Connection]":
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
            if self._opened_as[0] == os.getpid():
                self._connection.close()
            else:
                _of_a_parent.append(self._connection)  # closing it here would be in its name
            self._connection = None
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


_of_a_parent: "list[Connection]" = []


def may_live(process: ProcessIdentity) -> bool:
    """Whether it lives, as far as can be seen from this host."""
    return not process.is_here or process.is_alive()


def _say_nothing(line: str) -> None:
    pass


_SHOWN = 5
_INSERT = f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)})"
_TOLD = [name for name in COLUMNS if name not in ("run_id", "size")]
_UPSERT = (
    f"{_INSERT} ON CONFLICT (run_id) DO UPDATE SET is_settled = 0, "
    + ", ".join(f"{name} = excluded.{name}" for name in _TOLD)
    + " WHERE excluded.steps > runs.steps"
)
