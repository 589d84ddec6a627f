"""`dlrover-job plugins`: what jobs can be submitted here, and which plugins cannot be used."""

from typing import TYPE_CHECKING, Any

from dlrover_cli.cli.job_group import command, command_group
from dlrover_cli.cli.output import Cell, Column, Output, print_document, print_rows, remark
from dlrover_cli.cli.words import one_line

if TYPE_CHECKING:
    from dlrover_cli.jobs.plugins import InstalledPlugin

COLUMNS = (
    Column("Platform"),
    Column("Engine"),
    Column("Plugin", is_folded=True),
    Column("Package"),
    Column("Import"),
)
PROBLEM = Column("Problem", is_folded=True)

app = command_group("Look at what runs jobs: platforms, engines, plugins.", name="plugins")


@command(app, "list")
def list_plugins(output: Output = None) -> None:
    """Show every installed job plugin.

    Each is imported and checked as `submit` does it. One that cannot be used is shown with its
    problem.
    """
    # Not needed to show the help page or to complete a name.
    from dlrover_cli.jobs.plugins import GROUP, installed_plugins

    plugins = sorted(installed_plugins(), key=_place)
    if output is not None:
        print_document({"plugins": [_as_document(each) for each in plugins]}, output)
        return
    if not plugins:
        remark(f"no installed package has an entry point in the group {GROUP!r}")
        return
    rows = [_cells(each) for each in plugins]
    if any(each.error for each in plugins):
        print_rows((*COLUMNS, PROBLEM), rows)
    else:
        print_rows(COLUMNS, [row[:-1] for row in rows])


def _place(plugin: "InstalledPlugin") -> tuple[bool, tuple[str, str], str]:
    """By what they are for; those of which nobody knows it are last."""
    return plugin.pair is None, plugin.pair or ("", ""), plugin.name


def _as_document(plugin: "InstalledPlugin") -> dict[str, Any]:
    platform, engine = plugin.pair or (None, None)
    error = plugin.error
    return {
        "platform": platform,
        "engine": engine,
        "entry_point": plugin.name,
        "plugin": plugin.value,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "import_seconds": round(plugin.import_seconds, 6),
        "error": None if error is None else error.message,
        "hint": None if error is None else error.hint,
    }


def _cells(plugin: "InstalledPlugin") -> list[Cell]:
    platform, engine = plugin.pair or ("", "")
    return [
        Cell(platform, "bold"),
        Cell(engine, "bold"),
        Cell(plugin.value),
        Cell(f"{plugin.distribution} {plugin.version}"),
        Cell(f"{plugin.import_seconds * 1000:.0f} ms"),
        Cell("" if plugin.error is None else one_line(plugin.error.message), "red"),
    ]
