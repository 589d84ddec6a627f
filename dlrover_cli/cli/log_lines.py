"""Lines of all ranks of a run in the order of their times: chosen, and told in one of the forms."""

import heapq
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dlrover_cli.cli.log_files import (
    Line,
    LineReader,
    WorkerLog,
    attempts_of,
    find_worker_logs,
    ranks_of,
)
from dlrover_cli.words import moment


@dataclass(frozen=True, slots=True)
class Choice:
    """Which lines are wanted."""

    ranks: tuple[int, ...] = ()
    """All, if there are none here."""
    attempt: int | None = None
    all_attempts: bool = False
    """Otherwise the one attempt; without one, the latest and those that follow."""
    pattern: re.Pattern[bytes] | None = None

    def takes(self, line: Line) -> bool:
        return self.pattern is None or self.pattern.search(line.text.rstrip(b"\r\n")) is not None


class Printer:
    """Writes lines, each behind what tells whose it is; ends one before another one begins."""

    def __init__(self, out: BinaryIO, *, names_attempts: bool, shows_times: bool) -> None:
        self._out = out
        self.names_ranks = False
        self._names_attempts = names_attempts
        self._shows_times = shows_times
        self._open: tuple[WorkerLog, str] | None = None
        """Whose line has no end so far."""

    def show(self, line: Line) -> None:
        source = (line.log, line.stream)
        if self._open != source:
            self.end_line()
            self._out.write(self._before(line))
        self._out.write(line.text)
        self._open = None if line.text.endswith(b"\n") else source

    def end_line(self) -> None:
        if self._open is not None:
            self._open = None
            self._out.write(b"\n")

    def flush(self) -> None:
        self._out.flush()

    def _before(self, line: Line) -> bytes:
        names = [f"attempt {line.log.attempt}"] if self._names_attempts else []
        if self.names_ranks:
            names.append(f"rank {line.log.rank}")
        told = f"[{' '.join(names)}] " if names else ""
        if self._shows_times:
            told = f"{_moment(line.time_ns)} {told}"
        return told.encode()


class JsonPrinter:
    """One object per line, for programs."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.names_ranks = True

    def show(self, line: Line) -> None:
        told = {
            "time": line.time_ns / 1e9 if line.time_ns else None,
            "attempt": line.log.attempt,
            "rank": line.log.rank,
            "node": line.log.path.parents[2].name,
            "stream": line.stream,
            "line": line.text.rstrip(b"\r\n").decode("utf-8", "replace"),
        }
        self._out.write(json.dumps(told).encode() + b"\n")

    def end_line(self) -> None:
        """Every line has its end."""

    def flush(self) -> None:
        self._out.flush()


@dataclass(slots=True)
class WorkersOutput:
    """What the workers of a run print; each call of `copy` goes on where the last one ended."""

    nodes: Path
    printer: Printer | JsonPrinter
    choice: Choice
    whole_lines: bool
    """Whether a line without an end waits for it."""
    on_attempt: Callable[[int], None] = field(default=lambda attempt: None)
    """Called before the output of a later attempt."""
    has_shown: bool = False
    _current: int | None = None
    _readers: dict[Path, LineReader] = field(default_factory=dict)

    @property
    def has_read(self) -> bool:
        return any(reader.has_read for reader in self._readers.values())

    def copy(self) -> None:
        logs = find_worker_logs(self.nodes)
        attempts = attempts_of(logs)
        if not attempts:
            return
        if self._current is None:
            latest = attempts[0] if self.choice.all_attempts else attempts[-1]
            self._current = latest if self.choice.attempt is None else self.choice.attempt
        self._copy_attempt(logs, self._current)
        for later in attempts if self.choice.attempt is None else ():
            if later > self._current:
                self.finish()
                if not self.choice.all_attempts:
                    self.on_attempt(later)
                self._current = later
                self._copy_attempt(logs, later)
        self.printer.flush()

    def finish(self) -> None:
        """No more will come of this attempt: show the lines that have no end."""
        for line in self._in_order(LineReader.rest):
            self._show(line)
        self.printer.end_line()
        self.printer.flush()

    def _copy_attempt(self, logs: Sequence[WorkerLog], attempt: int) -> None:
        ours = [log for log in logs if log.attempt == attempt]
        there = logs if self.choice.all_attempts else ours
        self.printer.names_ranks = len(self.choice.ranks) != 1 and len(ranks_of(there)) > 1
        wanted = [log for log in ours if not self.choice.ranks or log.rank in self.choice.ranks]
        readers = [
            self._readers.setdefault(path, LineReader(log, stream, path))
            for log in wanted
            for stream, path in log.files()
        ]
        for line in heapq.merge(*(reader.lines() for reader in readers), key=_order):
            self._show(line)
        if not self.whole_lines:
            for line in self._in_order(LineReader.unfinished):
                self._show(line)

    def _in_order(self, take: Callable[[LineReader], Line | None]) -> Iterator[Line]:
        taken = [line for reader in self._readers.values() if (line := take(reader)) is not None]
        yield from sorted(taken, key=_order)

    def _show(self, line: Line) -> None:
        if self.choice.takes(line):
            self.has_shown = True
            self.printer.show(line)


def _order(line: Line) -> tuple[int, int, str]:
    return line.order


def _moment(time_ns: int) -> str:
    if not time_ns:
        return " " * 23
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{moment(seconds)}.{rest // 1_000_000:03}"
