"""docs/how-to/notifications.md: its commands do what it shows, and its tables are complete."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.telemetry.notices import DEFAULT_KINDS, notice_of
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished
from tests.telemetry.recorded import Journal

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "notifications.md")
EXAMPLES = ROOT / "examples" / "notifications"


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path, EXAMPLES)


def first_cells(heading: str) -> set[str]:
    section = PAGE.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_kinds_of_the_default_are_all_explained() -> None:
    assert first_cells("Which events") == DEFAULT_KINDS


def test_the_keys_of_a_message_are_all_explained() -> None:
    assert first_cells("The message") == set(notice_of(Journal().failed(1)[0], "a", "vm"))
