"""docs/how-to/doctor.md: its commands do what it shows, and its table has every check."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.doctor.examine import CHECKS
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

PAGE = read_page(Path(__file__).parents[2] / "docs" / "how-to" / "doctor.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def test_the_table_has_every_check_in_its_order() -> None:
    table = PAGE.text.partition("\n## The checks\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(CHECKS)
