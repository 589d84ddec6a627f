"""All runs of a user, one row each: an index over the run directories, shared by many processes.

The events of a run are the truth. A row knows how many steps of them it has seen, so that the same
step told twice (by the run itself and by whoever healed the ledger meanwhile) is taken once, and
none is taken back by a reader that was slow.
"""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dlrover_cli.contracts.run_states import IllegalTransition, RunState
from dlrover_cli.errors import DlroverError
from dlrover_cli.jobs.ledger_connection import LedgerConnection, MemoryConnection
from dlrover_cli.jobs.ledger_rows import (
    COLUMNS,
    RunRow,
    from_columns,
    process_of,
    process_text,
    to_columns,
)
from dlrover_cli.jobs.ledger_search import ambiguous, not_found
from dlrover_cli.jobs.story import times_of
from dlrover_cli.telemetry.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["Ledger", "RowIsBehind", "RunRow", "UnknownRun"]

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM runs"
_ACTIVE = tuple(state for state in RunState if not state.is_over)


def say_on_stderr(line: str) -> None:
    sys.stderr.write(f"dlrover: {line}\n")


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

    def __init__(self, state: Path, on_problem: Callable[[str], None]) -> None:
        self._runs = state / "runs"
        self._file = LedgerConnection(state / "ledger.db", on_problem)

    @classmethod
    def open(cls, state: Path, on_problem: Callable[[str], None] = say_on_stderr) -> Self:
        """The ledger of a state directory, made if there is none.

        One that is broken is moved aside, which ``on_problem`` is told in one line.
        """
        ledger = cls(state, on_problem)
        with ledger._file.connected():
            return ledger

    @classmethod
    def in_memory(cls, state: Path, on_problem: Callable[[str], None] = say_on_stderr) -> Self:
        """An empty one of this process alone; `heal` fills it from the state directory."""
        ledger = cls(state, on_problem)
        ledger._file = MemoryConnection(state / "ledger.db", on_problem)
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Have nothing open until the next use, if there is one."""
        self._file.close()

    def add(self, row: RunRow) -> None:
        """Put in a new run. One that is there already stays: it has told its story itself."""
        self.add_all([row])

    def add_all(self, rows: Iterable[RunRow]) -> None:
        """Those that are new, in one transaction."""
        with self._file.writing() as connection:
            connection.executemany(f"{_INSERT} ON CONFLICT DO NOTHING", map(to_columns, rows))

    def keep(self, row: RunRow) -> None:
        """Let the run be what its events say, unless the ledger has seen more of them already."""
        with self._file.writing() as connection:
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
        with self._file.writing() as connection:
            row = self._row(connection, run_id)
            if step is not None and step <= row.steps:
                return
            if step is not None and step > row.steps + 1:
                raise RowIsBehind(run_id)
            if not row.state.may_become(to):
                raise IllegalTransition(run_id, row.state, to)
            started, ended = times_of(to, time.time() if at is None else at, row.started)
            now = replace(
                row,
                state=to,
                reason=reason,
                exit_code=exit_code,
                started=started,
                ended=ended,
                is_cleaned=row.is_cleaned and to is not RunState.PENDING,
                steps=row.steps + 1,
            )
            connection.execute(_UPSERT, to_columns(now))

    def claim_cleanup(self, run_id: str, by: ProcessIdentity) -> bool:
        """Whether ``by`` is the one to clean up: nobody has, and nobody who lives is about to."""
        with self._file.writing() as connection:
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
        with self._file.writing() as connection:
            connection.execute("UPDATE runs SET cleaner = NULL WHERE run_id = ?", (run_id,))

    def settle(self, settled: Iterable[tuple[str, int, int]]) -> None:
        """Healing may pass these runs by: by their ids, how many steps they have, and their sizes.

        One that has made a step since then is not settled.
        """
        with self._file.writing() as connection:
            connection.executemany(
                "UPDATE runs SET is_settled = 1, size = ?3 WHERE run_id = ?1 AND steps = ?2",
                settled,
            )

    def remove(self, run_id: str) -> None:
        """Forget a run; one that is not there is no error."""
        with self._file.writing() as connection:
            connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))

    def row(self, run_id: str) -> RunRow:
        """Raises UnknownRun."""
        with self._file.connected() as connection:
            return self._row(connection, run_id)

    def rows(
        self, limit: int | None = None, states: Iterable[RunState] | None = None
    ) -> list[RunRow]:
        """The newest first."""
        where, values = _where_state(states)
        return self._selected(
            f"{where} ORDER BY submitted DESC, run_id DESC LIMIT ?",
            *values,
            -1 if limit is None else limit,
        )

    def count(self, states: Iterable[RunState] | None = None) -> int:
        with self._file.connected() as connection:
            where, values = _where_state(states)
            (number,) = connection.execute(f"SELECT COUNT(*) FROM runs{where}", values).fetchone()
            return int(number)

    def active(self) -> list[RunRow]:
        """Those that are not over."""
        return self.rows(states=_ACTIVE)

    def unsettled(self) -> list[RunRow]:
        """Those whose files may know more than their rows."""
        return self._selected(" WHERE is_settled = 0")

    def bookmarks(self) -> dict[str, str]:
        """By run id, how far somebody has read in long stories that are not settled."""
        with self._file.connected() as connection:
            return dict(
                connection.execute(
                    "SELECT run_id, bookmark FROM runs "
                    "WHERE is_settled = 0 AND bookmark IS NOT NULL"
                ).fetchall()
            )

    def set_bookmark(self, run_id: str, text: str) -> None:
        with self._file.writing() as connection:
            connection.execute("UPDATE runs SET bookmark = ? WHERE run_id = ?", (text, run_id))

    def run_ids(self) -> set[str]:
        with self._file.connected() as connection:
            return {run_id for (run_id,) in connection.execute("SELECT run_id FROM runs")}

    def total_size(self) -> int:
        """Of all runs that somebody has measured, in bytes."""
        with self._file.connected() as connection:
            (size,) = connection.execute("SELECT SUM(size) FROM runs").fetchone()
            return size or 0

    def find(self, text: str) -> RunRow:
        """The run that a person means: its id, the beginning of it, or its job's latest run.

        Raises UsageError with what is near.
        """
        text = text.encode(errors="backslashreplace").decode()
        exact = self._selected(" WHERE run_id = ?", text)
        if exact:
            return exact[0]
        if not text:
            raise not_found(text, [])
        begun = self._selected(
            " WHERE run_id >= ? AND run_id < ? ORDER BY submitted DESC, run_id DESC LIMIT ?",
            text,
            text + chr(0x10FFFF),
            _SHOWN + 1,
        )
        if len(begun) == 1:
            return begun[0]
        named = self._selected(" WHERE name = ? ORDER BY submitted DESC, run_id DESC LIMIT 1", text)
        if named:
            return named[0]
        if begun:
            raise ambiguous(text, begun, shown=_SHOWN)
        raise not_found(text, self.rows(limit=1000))

    def _selected(self, clause: str, *values: Any) -> list[RunRow]:
        with self._file.connected() as connection:
            found = connection.execute(_SELECT + clause, values)
            return [from_columns(each, self._runs) for each in found]

    def _row(self, connection: "Connection", run_id: str) -> RunRow:
        values = connection.execute(f"{_SELECT} WHERE run_id = ?", (run_id,)).fetchone()
        if values is None:
            raise UnknownRun(run_id)
        return from_columns(values, self._runs)


def _where_state(states: Iterable[RunState] | None) -> tuple[str, list[str]]:
    if states is None:
        return "", []
    values = [state.value for state in states]
    return f" WHERE state IN ({', '.join('?' * len(values))})", values


def may_live(process: ProcessIdentity) -> bool:
    """Whether it lives, as far as can be seen from this host."""
    return not process.is_here or process.is_alive()


_SHOWN = 5
_INSERT = f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)})"
_TOLD = [name for name in COLUMNS if name not in ("run_id", "size")]
_UPSERT = (
    f"{_INSERT} ON CONFLICT (run_id) DO UPDATE SET is_settled = 0, "
    "cleaner = CASE WHEN excluded.is_cleaned THEN NULL ELSE cleaner END, "
    + ", ".join(f"{name} = excluded.{name}" for name in _TOLD)
    + " WHERE excluded.steps > runs.steps"
)
