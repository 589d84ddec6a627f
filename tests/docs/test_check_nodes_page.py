"""docs/how-to/check-nodes.md: its commands do what it shows, its numbers are the code's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.config.settings import SETTING
from dlrover_cli.preflight.judging import SLOW_RATIO
from dlrover_cli.preflight.plan import MOST_PAIRINGS
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

PAGE = read_page(Path(__file__).parents[2] / "docs" / "how-to" / "check-nodes.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert SLOW_RATIO == 2
    assert "more than twice" in PAGE.text
    assert MOST_PAIRINGS == 3
    assert "at most three times" in PAGE.text
    assert SETTING["precheck_timeout"].default == 120
