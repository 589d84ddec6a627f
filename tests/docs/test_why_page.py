"""docs/why.md: its commands do what it shows, and its tables say what the documents have."""

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from dlrover_cli.diagnosis.run_story import Costs
from tests.diagnosis.journals import Journals, one_restart
from tests.docs.console import Block, prepare, read_page, run_block
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "why.md")


@pytest.mark.full
@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    prepare(PAGE, nothing, tmp_path / "typed")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    problems = run_block(block, tmp_path / "typed", launch, {"PATH": path})
    assert not problems, "\n".join(problems)


def test_links_and_pictures_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE.text):
        assert (ROOT / "docs" / target).is_file(), target


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
