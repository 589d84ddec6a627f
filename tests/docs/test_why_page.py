"""docs/how-to/why.md: its commands do what it shows, and its tables say what the documents have."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from dlrover_cli.diagnosis.run_story import Costs
from tests.diagnosis.journals import Journals, one_restart
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "why.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def first_cells(heading: str) -> list[str]:
    section = PAGE.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_table_of_parts_has_them_all() -> None:
    parts = {field.name for field in fields(Costs)} - {"wall", "goodput"}
    assert set(first_cells("What the time went into")) == parts


def test_the_table_of_keys_has_them_all(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    one_restart(journals)
    written = {"schema_version", "run", *journals.story(ended=12).to_json()}
    assert set(first_cells("For programs")) == written
