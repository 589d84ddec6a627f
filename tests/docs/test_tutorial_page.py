"""docs/tutorial/first-recovery.md: typed into one shell from top to bottom, it does as it shows."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.console import Block, prepare, read_page, run_block
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "tutorial"
PAGE = read_page(ROOT / "docs" / "tutorial" / "first-recovery.md")


@pytest.mark.full
@pytest.mark.timeout(480)
def test_the_commands_do_what_the_page_shows(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    prepare(PAGE, EXAMPLES, tmp_path / "typed")
    commands = [command for block in PAGE.blocks for command in block.commands]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    whole = Block(1, tuple(commands), dry_run=False)
    problems = run_block(whole, tmp_path / "typed", launch, {"PATH": path}, timeout=450)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name, text", PAGE.files)
def test_code_on_the_page_is_a_part_of_the_example(name: str, text: str) -> None:
    assert text in (EXAMPLES / name).read_text()
