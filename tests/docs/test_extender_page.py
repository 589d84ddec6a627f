"""docs/how-to/extender.md: its commands do what it shows, and its tables are those of the code."""

import re
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from dlrover_cli.contracts.extender import EXCHANGES, TASK_VERBS, Verb
from dlrover_cli.scheduling.arguments import KNOWN
from dlrover_cli.scheduling.reading import parse_extender_file
from dlrover_cli.services.bodies import LARGEST
from dlrover_cli.services.breaker import (
    FAILURES,
    LONGEST_PAUSE,
    PAUSE_IN_DEADLINES,
    SHORTEST_PAUSE,
)
from dlrover_cli.services.faults import LONGEST_SHOWN
from tests.docs.console import Block, read_page, run_block
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "extender.md")
EXAMPLE = ROOT / "examples" / "extender"
PORT = "8080"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def with_port(block: Block, port: str) -> Block:
    """The same on a port that is free here."""
    commands = [
        replace(
            command,
            text=command.text.replace(PORT, port),
            shown=tuple(line.replace(PORT, port) for line in command.shown),
        )
        for command in block.commands
    ]
    return replace(block, commands=tuple(commands))


@pytest.mark.full
@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    port, folder = free_port(), tmp_path / "examples" / "extender"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "extender.yaml"
    file.write_text(file.read_text().replace(PORT, port))
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    problems = run_block(with_port(block, port), tmp_path, launch, {"PATH": path})
    assert not problems, "\n".join(problems)


def test_the_files_on_the_page_can_be_read() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE.text, re.DOTALL)
    configs = [parse_extender_file(text, Path("extender.yaml")) for text in texts]
    assert [[*each.verbs] for config in configs for each in config.extenders] == [
        [Verb.PREDICATE]
    ] * 3
    assert configs[2].skipped == ("gang",)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without the table's own heading."""
    section = re.split(rf"^## {re.escape(heading)}$", PAGE.text, flags=re.MULTILINE)[1]
    lines = re.split(r"^## ", section, flags=re.MULTILINE)[0].splitlines()
    bodies = [
        line for above, line in pairwise(lines) if line.startswith("| ") and above.startswith("|")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in bodies]


def test_the_table_of_arguments_has_them_all() -> None:
    told = {row[0].strip("`") for row in rows("The file")}
    verbs = {verb.setting for verb in Verb}
    assert told == (set(KNOWN) - verbs) | {"extender.<verb>Verb"}


def test_the_table_of_verbs_has_them_all_with_what_is_in_an_answer() -> None:
    told = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2]))
        for row in rows("What a service is asked")
    }
    assert set(told) == set(Verb)
    for verb in Verb:
        fields = EXCHANGES[verb].answer.model_fields
        assert told[verb.value] == {field.alias or name for name, field in fields.items()}


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(PAGE.text.split())
    assert f"more than {LARGEST >> 20} MiB" in text
    assert f"up to {LONGEST_SHOWN} characters" in text
    assert (FAILURES, PAUSE_IN_DEADLINES) == (3, 10)  # "three other failures", "ten time-outs"
    assert f"({SHORTEST_PAUSE:g} s to {LONGEST_PAUSE:g} s)" in text
    assert len(TASK_VERBS) == 6  # "predicate, prioritize, both about victims, and both events"
