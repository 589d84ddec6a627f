"""The text of the status line: as much as fits, the most important first. Pure."""

import unicodedata
from dataclasses import dataclass

from dlrover_cli.launch.status.state import RunStatus
from dlrover_cli.words import age, counted, duration, printable, rate

_PROGRAM = "dlrover-run"
_LEAST_CUT = 12  # columns; less than that of a part says nothing


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The marks between and behind parts, as the terminal can show them."""

    between: str = " · "
    cut: str = "…"


ASCII = Glyphs(" | ", "...")


def line_of(status: RunStatus, now: float, width: int, glyphs: Glyphs = Glyphs()) -> str:  # noqa: B008 - frozen
    """One line of at most ``width`` columns."""
    line = f"{_PROGRAM}: "
    left = width - columns(line)
    for number, part in enumerate(_parts(status, now)):
        text = printable(part) if number == 0 else glyphs.between + printable(part)
        if columns(text) > left:
            return line + (shortened(text, left, glyphs.cut) if left >= _LEAST_CUT else "")
        line += text
        left -= columns(text)
    return line


def columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(_width(each) for each in text)


def shortened(text: str, width: int, mark: str = "…") -> str:
    """The beginning of the text with a mark behind it, if it is too long."""
    if columns(text) <= width:
        return text
    left, kept = width - columns(mark), ""
    for each in text:
        if _width(each) > left:
            break
        kept += each
        left -= _width(each)
    return (kept.rstrip() + mark)[: max(width, 0)]


def _parts(status: RunStatus, now: float) -> list[str]:
    """By their worth; the last one is cut where the line ends."""
    parts = []
    if status.doing:
        parts.append(f"{status.doing}, {_wait(status, now)}")
    if status.attempt is not None:
        parts.append(f"attempt {status.attempt}")
    if status.world_size is not None:
        parts.append(_size(status))
    if not status.doing:
        parts += _progress(status, now)
    if status.failure:
        parts.append(f"failure {age(status.failed_at, now)} ago: {status.failure}")
    return parts


def _progress(status: RunStatus, now: float) -> list[str]:
    running = f"running {_seconds(now - status.since)}"
    if not status.steps:
        return [running]
    if status.rate is None:
        return [f"step {status.steps:,}", running]
    return [f"step {status.steps:,}", rate(status.rate)]


def _wait(status: RunStatus, now: float) -> str:
    if status.until is not None and status.until > now:
        return f"in {_seconds(status.until - now)}"
    return _seconds(now - status.since)


def _seconds(seconds: float) -> str:
    """In whole seconds: tenths would make the line flicker."""
    return duration(max(int(seconds), 0)).replace(".0s", "s")


def _size(status: RunStatus) -> str:
    ranks = counted(status.world_size or 0, "rank")
    if status.nodes is None or status.nodes == 1:
        return ranks
    return f"{ranks} on {status.nodes} nodes"


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
