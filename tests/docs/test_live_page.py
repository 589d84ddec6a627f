"""docs/how-to/live.md: its commands do what it shows, and its tables have all keys."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.cli.top_picture import picture_of
from dlrover_cli.cli.top_view import COLUMNS
from tests.diagnosis.journals import Journals, one_restart
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "live.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def first_cells() -> set[str]:
    rows = [line for line in PAGE.text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_tables_have_all_keys_and_the_columns_that_need_words(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    one_restart(journals)
    keys = {"schema_version", "run", *picture_of(journals.story(), {}, 0.0).to_json()}
    told = first_cells()
    columns = {name for name in told if name.isupper()}
    assert told - columns == keys
    assert columns <= {column.heading.upper() for column in COLUMNS}


def test_the_pictures_are_there() -> None:
    for name in re.findall(r"\]\((\.\./images/[^)]+)\)", PAGE.text):
        assert (ROOT / "docs" / "how-to" / name).exists()
