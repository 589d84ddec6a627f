r"""Runs the commands of a documentation page and compares what they print with what it shows.

In a page,

    ```console
    $ ls *.toml
    rules.toml
    $ false
    $ echo $?
    1
    ```

is run in bash. Each line that is not a command has to be a part of some line of the output of the
command before it; `...` stands for anything. A command has to succeed, unless the next one shows
its exit code. With `console dry-run`, launchers show what they would do instead of doing it.

    ```toml rules.toml

begins a file, or a part of it: it must stand so in the directory of the examples, and where there
is no such file it is written for the commands.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished

_FENCE = re.compile(r"^```(?P<words>\S[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=== status "
_SHOWS_STATUS = "echo $?"


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed, and lines that have to be in its output."""

    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Commands that are typed one after the other into the same shell."""

    line: int
    commands: tuple[Command, ...]
    dry_run: bool

    @property
    def name(self) -> str:
        return f"line {self.line}: {self.commands[0].text[:60]}"

    def mentions(self, words: str) -> bool:
        return any(words in command.text for command in self.commands)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says that can be tried."""

    text: str
    blocks: tuple[Block, ...]
    files: tuple[tuple[str, str], ...]
    """Names and texts; a text may be a part of the file only."""


def read_page(path: Path) -> Page:
    text = path.read_text()
    blocks, files = [], []
    for found in _FENCE.finditer(text):
        language, *more = found["words"].split()
        if language == "console":
            line = text.count("\n", 0, found.start()) + 1
            blocks.append(Block(line, _commands(found["text"]), "dry-run" in more))
        elif more:
            files.append((more[0], found["text"]))
    return Page(text, tuple(blocks), tuple(files))


def each_block(page: Page) -> pytest.MarkDecorator:
    """Makes a test with the argument `block` one test for each block of the page."""
    blocks = [pytest.param(block, id=block.name) for block in page.blocks]
    return pytest.mark.parametrize("block", blocks)


def assert_shown(
    page: Page,
    block: Block,
    launch: Callable[..., Finished],
    directory: Path,
    examples: Path | None = None,
) -> None:
    """Type a block in a new directory, with the examples if there are any: it does as is shown."""
    if examples is None:
        examples = directory / "nothing"
        examples.mkdir()
    prepare(page, examples, directory / "typed")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    problems = run_block(block, directory / "typed", launch, {"PATH": path})
    assert not problems, "\n".join(problems)


def prepare(page: Page, examples: Path, directory: Path) -> None:
    """A directory to type in: the examples, and the files that only the page has."""
    shutil.copytree(examples, directory, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in page.files:
        path = directory / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def run_block(
    block: Block,
    directory: Path,
    launch: Callable[..., Finished],
    env: Mapping[str, str],
    **options: Any,
) -> list[str]:
    """Everything in which the commands differ from the page; `options` are those of `launch`."""
    script = directory / ".page.sh"
    script.write_text("exec 2>&1\n" + "".join(_with_status(command) for command in block.commands))
    changes = dict(env) | ({"DLROVER_DRY_RUN": "1"} if block.dry_run else {})
    changes.setdefault("DLROVER_PRELOAD", "none")  # what optimizers need takes its time to load
    finished = launch([script], command=["bash"], cwd=directory, env=changes, **options)
    parts = re.split(rf"^{_MARK}(\d+)\n", finished.stdout, flags=re.MULTILINE)
    outputs, statuses = parts[::2], [int(status) for status in parts[1::2]]
    if len(statuses) != len(block.commands):
        return [f"bash ended early:\n{finished.stdout}"]
    problems = []
    for number, command in enumerate(block.commands):
        following = block.commands[number + 1].text if number + 1 < len(block.commands) else ""
        if statuses[number] != 0 and following != _SHOWS_STATUS:
            problems.append(f"$ {command.text}\nexited with {statuses[number]}:\n{outputs[number]}")
        problems += [
            f"$ {command.text}\ndid not print:\n{line}\nbut:\n{outputs[number]}"
            for line in command.shown
            if not _is_shown(line, outputs[number])
        ]
    return problems


def _commands(text: str) -> tuple[Command, ...]:
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), ()))
        else:
            last = commands[-1]
            commands[-1] = Command(last.text, (*last.shown, line))
    return tuple(commands)


def _with_status(command: Command) -> str:
    # The subshell gives the status back to a following `echo $?`.
    return f"{command.text}\n_status=$?; printf '{_MARK}%d\\n' $_status; (exit $_status)\n"


def _is_shown(line: str, output: str) -> bool:
    pattern = ".*".join(re.escape(part.strip()) for part in line.split("..."))
    return re.search(pattern, output) is not None
