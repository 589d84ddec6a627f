"""Writes the pages of the reference that are made from the code: settings and commands.

    python docs/generate_reference.py

A test fails while a page is not what this gives.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main

from dlrover_cli.cli.help_view import default_text
from dlrover_cli.cli.job import PROG, app
from dlrover_cli.config.declaring import Kind, Panel, Setting
from dlrover_cli.config.settings import ACTIONS, SETTINGS

FOLDER = Path(__file__).parent / "reference"
COMMAND = "python docs/generate_reference.py"
_NOTE = f"<!-- Made by `{COMMAND}`; change the code, not this page. -->"


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    return {"settings.md": settings_page(), "commands.md": commands_page()}


def settings_page() -> str:
    """All settings of `dlrover-run`, panel by panel as its help has them."""
    lines = [_NOTE, "", *_SETTINGS_INTRO.splitlines()]
    for panel in Panel:
        declared = [each for each in SETTINGS if each.panel is panel]
        lines += ["", f"## {panel.value}", ""]
        lines += _table(_SETTING_COLUMNS, map(_setting_row, declared))
    lines += ["", "## Options that answer at once", ""]
    rows = ([_names(each), each.about, _yes(each.torchrun)] for each in ACTIONS)
    lines += _table(["option", "what it does", "torchrun"], rows)
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """All commands of `dlrover-job`, in the order of its help."""
    group = typer.main.get_command(app)
    context = _context(group, PROG, None)
    own = [each for each in group.get_params(context) if each.name != "help"]
    lines = [_NOTE, "", *_COMMANDS_INTRO.splitlines(), "", *_parameters(own, context)]
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        lines += _command(name, context)
    return "\n".join(lines) + "\n"


_SETTINGS_INTRO = """\
# Settings of `dlrover-run`

A setting is looked for on the command line, then in its variables in the order of the table, then
under its key, which stands below them, in `dlrover.toml` or in `[tool.dlrover]` of `pyproject.toml`
of the current directory; the first that has it wins. In the properties of a `torch` job in a
[job file](../how-to/job-files.md) a setting has the same key. An option may be written with `_` for
`-`, and shortened while no other begins so. A flag's variable is `1` or `0`; its key is `true` or
`false`. `dlrover-run --dry_run` shows each value that counts, and where it came from.

*torchrun* says whether torchrun has the option as well; what differs is in
[torchrun-compat.md](torchrun-compat.md)."""

_COMMANDS_INTRO = """\
# Commands of `dlrover-job`

[jobs.md](../how-to/jobs.md) shows them at work. A RUN is the id of a run, or as much of its
beginning as only one has, or the name of a job for its latest run. Exit codes are in
[exit-codes.md](exit-codes.md). Every command answers `--help`."""

_SETTING_COLUMNS = ["option", "meaning", "default", "variables, key", "torchrun"]


def _setting_row(setting: Setting) -> list[str]:
    about = setting.about
    if setting.choices:
        about += " One of " + ", ".join(map(_code, setting.choices)) + "."
    if setting.repeatable:
        about += " May be given more than once."
    return [
        _names(setting),
        about,
        _default(setting),
        "<br>".join(map(_code, (*setting.env, setting.key))),
        _yes(setting.torchrun),
    ]


def _default(setting: Setting) -> str:
    text = default_text(setting)
    if setting.kind is Kind.FLAG and not text:
        return "off"
    if not text:
        return "–"
    return text if setting.default_text else _code(text)


def _names(option: Any) -> str:
    names = ", ".join(_code(name) for name in (option.short, option.option) if name)
    metavar = getattr(option, "metavar", "")
    return f"{names} {_code(metavar)}" if metavar else names


def _command(name: str, parent: Any) -> Iterator[str]:
    """A command, or a group with the commands in it."""
    command = parent.command.get_command(parent, name)
    context = _context(command, name, parent)
    path = context.command_path
    if hasattr(command, "list_commands"):
        yield from ("", f"## {path}", "", command.help)
        for each in command.list_commands(context):
            yield from _command(each, context)
        return
    level = "##" if parent.parent is None else "###"
    parameters = [each for each in command.get_params(context) if each.name != "help"]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    usage = " ".join([path, "[OPTIONS]", *(_shape(each) for each in arguments)])
    yield from ("", f"{level} {path}", "", "```text", usage, "```", "", command.help)
    if parameters:
        yield from ("", *_parameters([*arguments, *_without(parameters, arguments)], context))


def _context(command: Any, name: str, parent: Any) -> Any:
    return command.make_context(name, [], parent=parent, resilient_parsing=True)


def _without(parameters: Sequence[Any], some: Sequence[Any]) -> list[Any]:
    return [each for each in parameters if each not in some]


def _parameters(parameters: Sequence[Any], context: Any) -> list[str]:
    rows = []
    for each in parameters:
        record = each.get_help_record(context)
        if record is None:
            continue  # hidden
        names, about = record
        if each.param_type_name == "argument":
            names = _shape(each)
        rows.append([_code(names), about.removesuffix("[required]").rstrip()])
    return _table(["", "meaning"], rows)


def _shape(argument: Any) -> str:
    """`RUN`, `[RUN]` or `RUN...`, whichever way its author has written the metavar."""
    name = argument.metavar or argument.name.upper()
    bare = name.strip("[].")
    more = "..." if argument.nargs == -1 else ""
    return f"{bare}{more}" if argument.required else f"[{bare}]{more}"


def _table(columns: Sequence[str], rows: Any) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "&#124;").replace("\n", " ")


def _code(text: str) -> str:
    if "|" not in text:
        return f"`{text}`"
    # What is escaped inside of backticks is read in two ways; this is not.
    return f"<code>{text.replace('<', '&lt;')}</code>"


def _yes(has: bool) -> str:
    return "yes" if has else ""


def main() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}", file=sys.stderr)


if __name__ == "__main__":
    main()
