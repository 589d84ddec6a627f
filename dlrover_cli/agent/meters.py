"""Measuring one worker: its rate of steps, and what its process uses."""

import contextlib
import os
from collections import deque
from dataclasses import dataclass, field

from dlrover_cli.workers.beats import Beat

_WINDOW_NS = 10_000_000_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_SHORTEST_SPAN = 0.1
# Of the fields behind the name in /proc/<pid>/stat.
_USER_TICKS, _SYSTEM_TICKS, _RESIDENT_PAGES = 11, 12, 21


@dataclass(slots=True)
class StepRate:
    """Steps per second over the last ten seconds, or over two steps where those take longer.

    It is measured between steps, so that it does not depend on when somebody looks. A worker that
    has been quiet for longer than two of its steps gets slower from look to look.
    """

    _points: deque[tuple[int, int]] = field(default_factory=deque)

    def look(self, beat: Beat, now_ns: int) -> float | None:
        """The rate now; None before the second step. Times are ``time.monotonic_ns``."""
        points = self._points
        if beat.steps > 0 and not points:
            points.append((1, beat.first_step_ns))
        if points and beat.steps > points[-1][0]:
            points.append((beat.steps, beat.step_ns))
        while len(points) > 2 and points[1][1] <= now_ns - _WINDOW_NS:
            points.popleft()
        if len(points) < 2:
            return None
        (first, began), (last, ended) = points[0], points[-1]
        usual = (ended - began) / (last - first)
        elapsed = ended - began + max(0.0, now_ns - ended - 2 * usual)
        return (last - first) * 1e9 / elapsed if elapsed > 0 else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses at one moment."""

    cpu_percent: float | None
    memory_bytes: int


class ProcessMeter:
    """CPU and memory of one process. The file stays open: its pid may be another's one day."""

    def __init__(self, pid: int, started: float) -> None:
        """``started`` is when the process was started; on ``time.monotonic``."""
        self._cpu_seconds, self._looked = 0.0, started
        self._percent: float | None = None
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def look(self, now: float) -> Usage | None:
        """What it uses now, CPU since the last look; None if it is gone."""
        if self._fd is None:
            return None
        try:
            # The name in brackets may hold blanks and brackets itself.
            fields = os.pread(self._fd, 1024, 0).rpartition(b")")[2].split()
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            pages = int(fields[_RESIDENT_PAGES])
        except (OSError, IndexError, ValueError):
            self.close()
            return None
        elapsed = now - self._looked
        if elapsed >= _SHORTEST_SPAN:
            seconds = ticks / _TICKS_PER_SECOND
            self._percent = 100.0 * max(0.0, seconds - self._cpu_seconds) / elapsed
            self._cpu_seconds, self._looked = seconds, now
        return Usage(self._percent, pages * _PAGE_SIZE)

    def close(self) -> None:
        """Safe to call again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
