"""Findings as a person reads them: one line each, and below what is not well why and what to do."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap

from dlrover_cli.cli.output import styled
from dlrover_cli.doctor.examine import Examined
from dlrover_cli.doctor.finding import Finding, Level
from dlrover_cli.words import counted, one_line

_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.PROBLEM: "bold red"}
_LEVEL = max(map(len, Level)) + 2
_ABOUT = 17
_WIDEST = 120
_NARROWEST = 20


def show(examined: Iterable[Examined], settled: Callable[[], None]) -> list[Examined]:
    """Print findings as they come, and how many of each there are; returns them all.

    `settled` is called before anything is printed, to take a line of progress away.
    """
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else None
    shown = []
    for check, found in examined:
        settled()
        for each in found:
            _print(each, width)
        shown.append((check, found))
    print(f"\n{summary([each for _, found in shown for each in found])}")
    return shown


def summary(findings: Sequence[Finding]) -> str:
    """`1 problem, 2 warnings, 14 fine`."""
    numbers = {level: len([1 for each in findings if each.level is level]) for level in Level}
    parts = [
        styled(counted(numbers[level], level.value), _STYLES[level])
        for level in (Level.PROBLEM, Level.WARNING)
        if numbers[level]
    ]
    return ", ".join([*parts, f"{numbers[Level.OK]} fine"])


def _print(finding: Finding, width: int | None) -> None:
    """In a pipe, lines are as long as they are."""
    mark = styled(finding.level.value.ljust(_LEVEL), _STYLES[finding.level])
    about = finding.about.ljust(_ABOUT)
    indent = _LEVEL + _ABOUT
    lines = _lines(finding.seen, width, indent)
    print(f"{mark}{about}{lines[0]}")
    for line in lines[1:]:
        print(" " * indent + line)
    for label, text in (("why", finding.why), ("fix", finding.fix)):
        if text:
            for number, line in enumerate(_lines(text, width, indent + 5)):
                head = styled(f"{label}  ", "bright_black") if number == 0 else " " * 5
                print(" " * indent + head + line)
    sys.stdout.flush()


def _lines(text: str, width: int | None, indent: int) -> list[str]:
    text = one_line(text)
    if width is None:
        return [text]
    room = max(width - indent, _NARROWEST)
    return wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]
