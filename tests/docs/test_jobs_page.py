"""docs/how-to/jobs.md: its commands do what it shows, and its tables say what the code has."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dlrover_cli.cli.run_view import as_document
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.exit_codes import ExitCode
from tests.cli.test_job_list import past_run
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

pytestmark = pytest.mark.full  # real jobs, one after the other

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "jobs.md")


@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without the tables' own headings."""
    section = re.split(rf"^#+ {re.escape(heading)}$", PAGE.text, flags=re.MULTILINE)[1]
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    bodies = [
        line for above, line in pairwise(lines) if line.startswith("| ") and above.startswith("|")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in bodies]


def test_the_table_of_states_has_them_all() -> None:
    assert [row[0].strip("`") for row in rows("List")] == [state.value for state in RunState]


def test_the_table_of_a_runs_keys_has_them_all() -> None:
    run = as_document(past_run(Path("/state"), "20250101-000000-abcdef", 1.0))
    told = {name for row in rows("For scripts") for name in re.findall(r"`(\w+)`", row[0])}
    assert told == set(run) | {"submit", "list", "show", "stop", "cleanup"}


def test_the_exit_codes_are_those_that_there_are() -> None:
    told = [row[0] for row in rows("Exit codes")]
    known = [ExitCode.SUCCESS, ExitCode.FAILURE, ExitCode.USAGE]
    assert told == [*(str(int(code)) for code in known), "130", "the job's own"]
