"""The help of `dlrover-job`: every command has a page that can be read at 80 columns."""

import re
from typing import Any

import pytest
import typer.main

from dlrover_cli.cli.job import COMMANDS, app, main
from dlrover_cli.errors import UsageError
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import run_python
from tests.cli.test_help import loaded

GROUPS = {
    "plugins": ["list", "check"],
    "failover": ["test"],
    "extender": ["check", "schema"],
    "rendezvous": ["serve"],
}
PAGES = [(name,) for name in COMMANDS] + [
    (group, name) for group, names in GROUPS.items() for name in names
]


def parameters(words: tuple[str, ...]) -> list[Any]:
    """Of a command, as Typer knows them."""
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return list(command.params)


def page(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_is_on_the_first_page_with_a_whole_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = page(capsys).partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_every_page_fits_the_screen_and_explains_every_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = page(capsys, *words)
    assert text.startswith(f"Usage: dlrover-job {' '.join(words)}")
    assert not re.search(r"\[\[", text.splitlines()[0]), "marked as optional or many twice"
    assert max(map(len, text.splitlines())) <= 80
    assert [each.name for each in parameters(words) if not each.help] == []


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_short_help_is_the_same_everywhere(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    long = page(capsys, *words)
    assert main([*words, "-h"]) == 0
    assert capsys.readouterr().out == long


@pytest.mark.parametrize("words", [(), *((name,) for name in GROUPS)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    long = page(capsys, *words)
    assert main(list(words)) == 0
    assert capsys.readouterr().out == long


def test_a_mistyped_command_is_told_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="Did you mean 'submit'") as caught:
        main(["sumbit"])
    assert caught.value.hint == "See dlrover-job --help"


@pytest.mark.parametrize("name, missing", [("submit", "FILE"), ("stop", "RUN...")])
def test_what_a_command_needs_is_asked_for(name: str, missing: str) -> None:
    with pytest.raises(UsageError, match=f"Missing argument '{re.escape(missing)}'") as caught:
        main([name])
    assert caught.value.hint == f"See dlrover-job {name} --help"


def test_a_page_of_one_command_loads_neither_torch_nor_the_others() -> None:
    found = run_python("-X", "importtime", JOB_PROGRAM, "list", "--help")
    assert found.returncode == 0
    assert loaded(found.stderr) & {"torch", "rich", "yaml", "importlib_metadata"} == set()
    assert "dlrover_cli.failover" not in found.stderr
