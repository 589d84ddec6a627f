"""`dlrover-job plugins`: what is installed that extends this program, and what cannot be used."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrover_cli.cli.job_group import command, command_group
from dlrover_cli.cli.output import Cell, Column, Output, print_document, print_rows, remark
from dlrover_cli.words import one_line

if TYPE_CHECKING:
    from dlrover_cli.cli.extension_kinds import Extension
    from dlrover_cli.jobs.plugins import InstalledPlugin

JOB_COLUMNS = (Column("Platform"), Column("Engine"))
COLUMNS = (Column("Kind"), Column("Name"))
MORE_COLUMNS = (Column("Plugin", is_folded=True), Column("Package"), Column("Import"))
PROBLEM = Column("Problem", is_folded=True)

app = command_group("Look at what extends this program, of every kind.", name="plugins")


@command(app, "list")
def list_plugins(output: Output = None) -> None:
    """Show every installed plugin and extension.

    Each is imported and checked as those do it who use it. One that cannot be used is shown with
    its problem. What torch itself brings is left out.
    """
    # Not needed to show the help page or to complete a name.
    from dlrover_cli.cli.extension_kinds import installed_extensions
    from dlrover_cli.jobs.plugins import GROUP, installed_plugins

    plugins = sorted(installed_plugins(), key=_place)
    others = installed_extensions()
    if output is not None:
        print_document(
            {
                "plugins": [_job_plugin(each) for each in plugins],
                "extensions": [_extension(each) for each in others.found],
                "conflicts": list(others.conflicts),
            },
            output,
        )
        return
    if plugins:
        heads = [[*map(_bold, each.pair or ("", ""))] for each in plugins]
        _print(JOB_COLUMNS, heads, plugins)
    else:
        remark(f"no installed package has an entry point in the group {GROUP!r}")
    if others.found:
        print()
        heads = [[Cell(each.kind.value), _bold(each.name)] for each in others.found]
        _print(COLUMNS, heads, others.found)
    for sentence in others.conflicts:
        remark(f"conflict: {sentence}")


@command(app, "check")
def check_plugins(
    reference: Annotated[
        str | None,
        typer.Argument(metavar="MODULE::CLASS", help="Check this class instead."),
    ] = None,
    output: Output = None,
) -> None:
    """Check every installed plugin and extension, or one class.

    Exits with 1 if something cannot be used. A class is checked as what it derives from: a job
    plugin, a unified extension, a rendezvous handler, logs specs, a failover extension or a metrics
    handler. That several unified extensions define the same method is explained, and is no error.
    """
    from dlrover_cli.cli.extension_kinds import check_reference, installed_extensions
    from dlrover_cli.jobs.plugins import installed_plugins

    conflicts: tuple[str, ...] = ()
    if reference is not None:
        documents = [_extension(check_reference(reference, Path.cwd()))]
    else:
        others = installed_extensions()
        conflicts = others.conflicts
        documents = [{"kind": "job plugin", **_job_plugin(each)} for each in installed_plugins()]
        documents += [_extension(each) for each in others.found]
    broken = [each for each in documents if each["error"] is not None]
    if output is not None:
        print_document({"checked": documents, "conflicts": list(conflicts)}, output)
    else:
        _tell_of_check(documents, conflicts)
    if broken:
        raise typer.Exit(1)


def _tell_of_check(documents: list[dict[str, Any]], conflicts: tuple[str, ...]) -> None:
    for each in documents:
        if each["error"] is None:
            took = f"{each['import_seconds'] * 1000:.0f} ms"
            print(f"ok      {each['kind']} {each['plugin']} ({took})")
            continue
        print(f"broken  {one_line(each['error'])}")
        if each["hint"]:
            print(f"        hint: {one_line(each['hint'])}")
    for sentence in conflicts:
        print(f"note    {sentence}")


def _place(plugin: "InstalledPlugin") -> tuple[bool, tuple[str, str], str]:
    """By what they are for; those of which nobody knows it are last."""
    return plugin.pair is None, plugin.pair or ("", ""), plugin.name


def _job_plugin(plugin: "InstalledPlugin") -> dict[str, Any]:
    platform, engine = plugin.pair or (None, None)
    return {"platform": platform, "engine": engine, **_common(plugin)}


def _extension(extension: "Extension") -> dict[str, Any]:
    return {"kind": extension.kind.value, **_common(extension)}


def _common(plugin: "InstalledPlugin | Extension") -> dict[str, Any]:
    error = plugin.error
    return {
        "entry_point": plugin.name or None,
        "plugin": plugin.value,
        "distribution": plugin.distribution or None,
        "version": plugin.version or None,
        "import_seconds": round(plugin.import_seconds, 6),
        "error": None if error is None else error.message,
        "hint": None if error is None else error.hint,
    }


def _print(
    columns: tuple[Column, ...],
    heads: list[list[Cell]],
    plugins: "Sequence[InstalledPlugin | Extension]",
) -> None:
    rows = [[*head, *_cells(each)] for head, each in zip(heads, plugins, strict=True)]
    if any(each.error for each in plugins):
        print_rows((*columns, *MORE_COLUMNS, PROBLEM), rows)
    else:
        print_rows((*columns, *MORE_COLUMNS), [row[:-1] for row in rows])


def _cells(plugin: "InstalledPlugin | Extension") -> list[Cell]:
    return [
        Cell(plugin.value),
        Cell(f"{plugin.distribution} {plugin.version}"),
        Cell(f"{plugin.import_seconds * 1000:.0f} ms"),
        Cell("" if plugin.error is None else one_line(plugin.error.message), "red"),
    ]


def _bold(text: str) -> Cell:
    return Cell(text, "bold")
