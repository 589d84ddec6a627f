"""One stream of one worker on its way: to its file, the console, and a file of chosen lines."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dlrover_cli.workers.console import Prefixed, Speaker, console_of
from dlrover_cli.workers.log_file import KEPT_AT_EACH_END, LogFile
from dlrover_cli.workers.nursery import write_all

TAIL_BYTES = 1 << 16
Report = Callable[[str, OSError], None]
"""Gets the path of a file that cannot be written, and why."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Lines that contain any of ``needles`` are also written to the shared file at ``path``."""

    path: str
    needles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The destinations of one stream of one worker."""

    file: str | None = None
    console: int | None = None
    prefix: str = ""
    line_filter: LineFilter | None = None
    keep_tail: bool = False
    bounded: bool = False
    """Whether of a file that grows too long only its beginning and its end are kept."""
    times: str | None = None
    """Where to write down when the file has grown."""
    watched: bool = False
    """Whether a stream that goes to the console alone must not get there by itself."""

    @property
    def needs_pump(self) -> bool:
        if self.console is None:
            return self.keep_tail
        return self.keep_tail or self.watched or self.file is not None or bool(self.prefix)


@dataclass(frozen=True, slots=True)
class WorkerStreams:
    """Both output streams of one worker."""

    stdout: StreamPlan
    stderr: StreamPlan


class ChosenLines:
    """The lines of one stream that go to a shared file, too."""

    def __init__(self, fd: int, chosen: LineFilter, prefix: bytes) -> None:
        self.path = chosen.path
        self._fd = fd
        self._lines = Prefixed(prefix, on_terminal=False)
        self._needles = tuple(needle.encode() for needle in chosen.needles)
        self._begin = len(prefix)

    def feed(self, data: bytes) -> None:
        self._keep(self._lines.feed(data))

    def finish(self) -> None:
        self._keep(self._lines.finish())

    def _keep(self, lines: bytes) -> None:
        kept = [
            line
            for line in lines.split(b"\n")
            if any(line.find(needle, self._begin) >= 0 for needle in self._needles)
        ]
        if kept:
            end = b"" if lines.endswith(kept[-1]) else b"\n"
            write_all(self._fd, b"\n".join(kept) + end)


@dataclass(slots=True)
class Route:
    """Where one stream comes from and all that it is copied to."""

    source: int
    """-1 when the stream has ended."""
    plan: StreamPlan
    file: LogFile | None
    speaker: Speaker | None
    prefixed: Prefixed | None
    chosen: ChosenLines | None
    report: Report
    tail: bytearray = field(default_factory=bytearray)
    last: float = 0.0
    """When something came, on ``time.monotonic``; 0 if nothing did."""
    is_paused: bool = False
    """Whether the console has to catch up before more is read."""

    @property
    def has_too_much(self) -> bool:
        return self.speaker is not None and self.speaker.has_too_much

    def deliver(self, chunk: bytes) -> None:
        self.last = time.monotonic()
        self.tail += chunk
        if len(self.tail) > 2 * TAIL_BYTES:
            del self.tail[:-TAIL_BYTES]
        if self.file is not None:
            self._write_file(self.file, chunk)
        if self.speaker is not None:
            self.speaker.say(chunk if self.prefixed is None else self.prefixed.feed(chunk))
        if self.chosen is not None:
            self._choose(lambda chosen: chosen.feed(chunk), self.chosen)

    def finish_lines(self) -> None:
        """Show a last line that has no end."""
        if self.speaker is not None:
            if self.prefixed is not None:
                self.speaker.say(self.prefixed.finish())
            self.speaker.finish()
        if self.chosen is not None:
            self._choose(ChosenLines.finish, self.chosen)

    def close(self, keep: set[int]) -> None:
        """Close what is open, except for these descriptors."""
        if self.source >= 0 and self.source not in keep:
            os.close(self.source)
        if self.file is not None:
            self.file.close(keep)

    def _write_file(self, file: LogFile, chunk: bytes) -> None:
        try:
            file.write(chunk)
        except OSError as error:
            self.report(self.plan.file or "", error)
            file.close()
            self.file = None

    def _choose(self, use: Callable[[ChosenLines], None], chosen: ChosenLines) -> None:
        try:
            use(chosen)
        except OSError as error:
            self.report(chosen.path, error)
            self.chosen = None


def open_route(
    source: int, plan: StreamPlan, open_shared: Callable[[str], int | None], report: Report
) -> Route:
    """The route of a plan; a file that cannot be opened is reported and missed."""
    file = _try_open(plan, report)
    prefix = plan.prefix.encode()
    prefixed = speaker = chosen = None
    if plan.console is not None:
        speaker = Speaker(console_of(plan.console), plan.console)
        if prefix:
            prefixed = Prefixed(prefix, on_terminal=os.isatty(plan.console))
    if plan.line_filter is not None:
        shared = open_shared(plan.line_filter.path)
        chosen = None if shared is None else ChosenLines(shared, plan.line_filter, prefix)
    return Route(source, plan, file, speaker, prefixed, chosen, report)


def _try_open(plan: StreamPlan, report: Report) -> LogFile | None:
    if plan.file is None:
        return None
    try:
        return LogFile(plan.file, plan.times, limit=KEPT_AT_EACH_END if plan.bounded else None)
    except OSError as error:
        report(plan.file, error)
        return None
