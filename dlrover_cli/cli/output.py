"""What a command prints: a table on a terminal, lines in a pipe, a document for a program.

Results go to stdout, remarks and hints to stderr. With `-o`, stdout gets exactly one document.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import typer

SCHEMA_VERSION = 1
NOTHING = "-"
"""In a column of lines that a script may split, so that each line has as many words."""


class Format(Enum):
    """Of a document."""

    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format | None,
    typer.Option(
        "-o", "--output", help="Print one document instead, for programs; --json is -o json."
    ),
]


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table."""

    heading: str
    is_folded: bool = False
    """Whether its texts may go on in the next line; others are kept in one piece, to be copied."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and how Rich shows it on a terminal."""

    text: str
    style: str = ""


def print_document(content: Mapping[str, Any], form: Format) -> None:
    """Print one document with its `schema_version`."""
    document = {"schema_version": SCHEMA_VERSION, **content}
    if form is Format.JSON:
        print(json.dumps(document, indent=2))
        return
    # Not needed for anything else.
    import yaml

    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")


def print_rows(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """A table on a terminal, aligned lines elsewhere."""
    if sys.stdout.isatty():
        _print_table(columns, rows)
        return
    lines = [[column.heading.upper() for column in columns]]
    lines += [[cell.text or NOTHING for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def remark(text: str) -> None:
    """Something beside the result."""
    print(text, file=sys.stderr, flush=True)


def styled(text: str, style: str) -> str:
    """The text in a style of Rich's, without Rich, on a terminal that wants it."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\033[{codes}m{text}\033[0m"


_CODES = {
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "bright_black": "90",
}


def _print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    class PipeConsole(Console):
        """Tells its caller that the reader has gone; Rich would end the process with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = PipeConsole(highlight=False, markup=False, emoji=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column, width in zip(columns, _widths(columns, rows, console.width), strict=True):
        # Folded rather than cut: nothing may be lost on a narrow screen.
        table.add_column(column.heading, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    console.print(table)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], screen: int
) -> list[int | None]:
    """The widths that Rich must not change: of what is not folded, if the screen has room."""
    fixed: list[int | None] = [
        None
        if column.is_folded
        else max(len(column.heading), *(len(row[number].text) for row in rows), 0)
        for number, column in enumerate(columns)
    ]
    taken = sum(each or _NARROWEST for each in fixed) + 2 * (len(columns) - 1)
    return fixed if taken <= screen else [None] * len(columns)


_NARROWEST = 8
"""Of a column that is folded."""
