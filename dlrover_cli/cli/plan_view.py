"""A plan, for a person as tables and lines to copy, or for a program as one JSON document."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlrover_cli.config.sources import Source, SourceKind

SCHEMA_VERSION = 1
# Nobody's screen: what reads a pipe looks for whole values.
_PIPE_WIDTH = 1000


class PlannedSetting(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def source(self) -> Source: ...


class PlannedRank(Protocol):
    @property
    def local_rank(self) -> int: ...
    @property
    def command(self) -> Sequence[str]: ...
    @property
    def env(self) -> Mapping[str, str]: ...


class PlannedPlugin(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def loaded_from(self) -> str: ...


class Plan(Protocol):
    """What is shown; `launch.plan` makes it."""

    @property
    def settings(self) -> Sequence[PlannedSetting]: ...
    @property
    def ranks(self) -> Sequence[PlannedRank]: ...
    @property
    def plugins(self) -> Sequence[PlannedPlugin]: ...
    @property
    def torchrun(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...


class PipeConsole(Console):
    """Tells its caller that the reader has gone; Rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def render(plan: Plan, console: Console | None = None) -> None:
    """Print the plan: settings with what was asked for first, what runs where, what to know."""
    console = console or PipeConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    _show_settings(console, plan.settings)
    _show_commands(console, plan.ranks)
    _show_environment(console, plan.ranks)
    if plan.plugins:
        _show_plugins(console, plan.plugins)
    _show_heading(console, "The same with torchrun")
    _show_line(console, shlex.join(plan.torchrun))
    if plan.notes:
        _show_heading(console, "Notes")
        for note in plan.notes:
            _show_line(console, f"- {note}")


def to_json(plan: Plan) -> str:
    """The whole plan as one JSON document."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "settings": [
            {
                "name": each.name,
                "value": each.value,
                "source": {"kind": each.source.kind.value, "where": each.source.where},
            }
            for each in plan.settings
        ],
        "ranks": [
            {"local_rank": each.local_rank, "command": list(each.command), "env": dict(each.env)}
            for each in plan.ranks
        ],
        "plugins": [
            {"kind": each.kind, "reference": each.reference, "loaded_from": each.loaded_from}
            for each in plan.plugins
        ],
        "torchrun": list(plan.torchrun),
        "notes": list(plan.notes),
    }
    return json.dumps(document, indent=2, default=str)


def _show_settings(console: Console, settings: Sequence[PlannedSetting]) -> None:
    table = _table("Setting", "Value", "From")
    asked = [each for each in settings if each.source.kind is not SourceKind.DEFAULT]
    for each in asked:
        table.add_row(
            Text(each.name, style="bold"), Text(_in_words(each.value)), Text(str(each.source))
        )
    table.add_section()
    for each in settings:
        if each.source.kind is SourceKind.DEFAULT:
            row = (Text(each.name), Text(_in_words(each.value)), Text("default"))
            table.add_row(*row, style="dim")
    longest = max((len(each.name) for each in settings), default=0)
    if longest <= console.width // 2:  # names are looked for, so they stay in one piece
        table.columns[0].min_width = longest
    _show_heading(console, "Settings")
    console.print(table)


def _show_commands(console: Console, ranks: Sequence[PlannedRank]) -> None:
    by_command: dict[tuple[str, ...], list[int]] = {}
    for each in ranks:
        by_command.setdefault(tuple(each.command), []).append(each.local_rank)
    for command, local_ranks in by_command.items():
        shared = len(local_ranks) == len(ranks)
        whose = "every rank" if shared else "local rank " + ", ".join(map(str, local_ranks))
        _show_heading(console, f"Command of {whose}")
        _show_line(console, shlex.join(command))


def _show_environment(console: Console, ranks: Sequence[PlannedRank]) -> None:
    names = list(dict.fromkeys(name for each in ranks for name in each.env))
    values = {name: [each.env.get(name) for each in ranks] for name in names}
    same = {name: found[0] for name, found in values.items() if len(set(found)) == 1}
    differing = [name for name in names if name not in same]
    if same:
        _show_heading(console, "Environment of every rank")
        for name, value in same.items():
            _show_line(console, f"{name}={shlex.quote(value or '')}")
    if differing:
        _show_heading(console, "Environment by rank")
        table = _table("Local rank", *differing)
        for each in ranks:
            cells = [each.env.get(name, "not set") for name in differing]
            table.add_row(Text(str(each.local_rank)), *map(Text, cells))
        console.print(table)


def _show_plugins(console: Console, plugins: Sequence[PlannedPlugin]) -> None:
    _show_heading(console, "Plugins")
    table = _table("Kind", "Reference", "Loaded from")
    for each in plugins:
        table.add_row(Text(each.kind), Text(each.reference), Text(str(each.loaded_from)))
    console.print(table)


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        # Folded rather than cut: nothing of a value may be lost on a narrow screen.
        table.add_column(heading, overflow="fold")
    return table


def _show_heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold underline"))


def _show_line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _in_words(value: object) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return "yes" if value else "no"
        case "" | () | []:
            return "empty"
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
