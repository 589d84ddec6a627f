"""docs/how-to/touch.md: its commands do what it shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.control.wire import Command
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

PAGE = read_page(Path(__file__).parents[2] / "docs" / "how-to" / "touch.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def test_every_command_is_on_the_page() -> None:
    assert [each.value for each in Command if f"dlrover-job {each.value}" not in PAGE.text] == []
