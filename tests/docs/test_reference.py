"""docs/reference: what is made from the code is what the code gives, and the rest is complete."""

import re

import pytest

from dlrover_cli.cli.job import COMMANDS
from dlrover_cli.config.settings import OPTIONS
from dlrover_cli.exit_codes import ExitCode
from docs.generate_reference import COMMAND, FOLDER, pages
from tests.project.documents import text

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_gives(name: str) -> None:
    fresh = (FOLDER / name).read_text() == PAGES[name]
    assert fresh, f"docs/reference/{name} is not up to date; run: {COMMAND}"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.option)
def test_every_option_has_one_row(option) -> None:
    rows = re.findall(rf"^\| (?:`-\w`, )?`{option.option}`[ |]", PAGES["settings.md"], re.M)
    assert len(rows) == 1


def test_every_command_is_explained_on_a_page_that_is_not_generated() -> None:
    pages = [path for path in FOLDER.parent.rglob("*.md") if path.name not in PAGES]
    whole = "\n".join(path.read_text() for path in pages)
    assert [name for name in COMMANDS if f"dlrover-job {name}" not in whole] == []


def test_every_exit_code_has_its_row_and_its_name() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text("docs/reference/exit-codes.md"), re.M)
    assert {name: int(code) for code, name in rows} == {code.name: int(code) for code in ExitCode}
