"""The help page, and that asking for it is cheap."""

import subprocess
import sys

import pytest

from dlrover_cli import __version__
from dlrover_cli.cli.help_view import help_page
from dlrover_cli.cli.typer_adapter import build_command
from dlrover_cli.config.declaring import Panel
from dlrover_cli.config.settings import OPTIONS, SETTINGS
from tests.cli.program import ENVIRON, run_program, run_python

PAGE_80 = help_page(80, styled=False)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.option)
def test_every_option_is_on_the_page_once_and_spelled_with_dashes(option) -> None:
    entries = [line.split() for line in PAGE_80.splitlines() if line.startswith("  -")]
    shown = [entry for entry in entries if option.option in entry[:2]]
    assert len(shown) == 1
    if option.short:
        assert shown[0][:2] == [f"{option.short},", option.option]


def test_no_underscore_spelling_is_on_the_page() -> None:
    assert [s.name for s in SETTINGS if "_" in s.name and f"--{s.name}" in PAGE_80] == []


def test_every_option_that_typer_has_is_on_the_page() -> None:
    for parameter in build_command().params:
        if parameter.param_type_name == "option":
            assert f" {parameter.opts[0]}" in PAGE_80


def test_typer_has_every_option_in_every_spelling_under_its_panel() -> None:
    parameters = {parameter.name: parameter for parameter in build_command().params}
    for setting in SETTINGS:
        parameter = parameters[setting.name]
        assert tuple(parameter.opts) == setting.spellings
        assert parameter.rich_help_panel == setting.panel.value
        assert parameter.help == setting.about


def test_the_page_has_its_panels_in_order() -> None:
    lines = PAGE_80.splitlines()
    positions = [lines.index(panel.value) for panel in Panel]
    assert positions == sorted(positions)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_fits_the_screen(width: int) -> None:
    entries, _, _ = help_page(width, styled=False).partition("Examples")
    assert max(map(len, entries.splitlines())) <= width


def test_a_default_is_not_torn_apart_by_the_end_of_the_line() -> None:
    assert "[default: 127.0.0.1]" in PAGE_80
    assert "[default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30]" in help_page(120, styled=False)
    assert "\N{NO-BREAK SPACE}" not in PAGE_80


def test_defaults_and_choices_are_told() -> None:
    text = " ".join(PAGE_80.split())
    assert "[default: 1:1]" in text
    assert "[spawn|fork|forkserver; default: spawn]" in text
    assert "[default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30]" in text
    assert "HOST[:PORT]" in text


def test_a_piped_page_has_no_colours_and_imports_neither_torch_nor_rich() -> None:
    found = run_python("-X", "importtime", "-m", "dlrover_cli", "--help", COLUMNS="80")
    assert found.stdout.strip() == PAGE_80
    heavy = {"torch", "rich", "pydantic", "numpy", "argparse", "tomllib"}
    assert loaded(found.stderr) & heavy == set()


@pytest.mark.parametrize(
    "argv, code", [(["--version"], 0), (["--bogus", "t.py"], 2), (["--max-restarts=x", "t.py"], 2)]
)
def test_version_and_usage_errors_do_not_import_torch(argv: list[str], code: int) -> None:
    found = run_python("-X", "importtime", "-m", "dlrover_cli", *argv)
    assert found.returncode == code
    assert "dlrover_cli" in loaded(found.stderr)
    assert loaded(found.stderr) & {"torch", "rich", "pydantic"} == set()


def loaded(importtime: str) -> set[str]:
    lines = [line for line in importtime.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_a_terminal_gets_bold_names_unless_it_asks_not_to() -> None:
    assert "\033[1m--nnodes\033[0m" in help_page(80, styled=True)
    assert "\033" not in PAGE_80


def test_the_width_of_the_screen_is_respected() -> None:
    assert run_program("--help", COLUMNS="110").stdout.strip() == help_page(110, styled=False)


def test_version_is_one_line() -> None:
    assert run_program("--version").stdout == f"dlrover-run {__version__}\n"


def test_help_goes_to_stdout_and_survives_a_closed_pipe() -> None:
    found = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m dlrover_cli --help | head -1; true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=ENVIRON,
    )
    assert found.stdout == "Usage: dlrover-run [OPTIONS] SCRIPT [ARGS]...\n"
    assert found.stderr == ""
