"""docs/how-to/job-files.md: its commands do what it shows, and its tables say what the code has."""

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dlrover_cli.contracts.jobs import BaseJobConfig
from dlrover_cli.jobs.job_config import make_config
from dlrover_cli.jobs.job_file import read_job_file
from dlrover_cli.jobs.job_values import READERS
from dlrover_cli.platforms.local.local_job import COMMON_PROPERTIES
from tests.docs.console import Block, prepare, read_page, run_block
from tests.harness.launcher import Finished

pytestmark = pytest.mark.full  # real jobs, one after the other

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "job-files.md")
EXAMPLES = ROOT / "examples" / "jobs"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    prepare(PAGE, EXAMPLES, tmp_path / "jobs")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    problems = run_block(block, tmp_path / "jobs", launch, {"PATH": path})
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name, text", PAGE.files)
def test_a_file_on_the_page_is_the_example_or_a_part_of_it(name: str, text: str) -> None:
    if (EXAMPLES / name).exists():
        assert text in (EXAMPLES / name).read_text()


def test_every_example_is_on_the_page() -> None:
    examples = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".toml")}
    assert examples <= {name for name, _text in PAGE.files}


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without the tables' own headings."""
    section = re.split(rf"^#+ {re.escape(heading)}$", PAGE.text, flags=re.MULTILINE)[1]
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    bodies = [
        line for above, line in pairwise(lines) if line.startswith("| ") and above.startswith("|")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in bodies]


def test_the_table_of_keys_has_them_all() -> None:
    assert sorted(row[0].strip("`") for row in rows("Keys")) == sorted(READERS)


def test_the_defaults_in_the_table_are_those_of_the_code(tmp_path: Path) -> None:
    told = {row[0].strip("`"): row[2].strip("`") for row in rows("Keys")}
    (tmp_path / "a.yaml").write_text("train: {engine: torch}")
    config = make_config(read_job_file(tmp_path / "a.yaml").jobs[0], BaseJobConfig)
    assert told["platform"] == config.platform
    assert config.exec_mode is not None
    assert told["exec_mode"] == config.exec_mode.value
    assert told["priority"] == str(config.priority)


def test_the_properties_that_all_local_jobs_have_are_in_the_table() -> None:
    table = rows("Properties of the local engines")
    first = next(index for index, row in enumerate(table) if row[0] == "all")
    assert [row[1].strip("`") for row in table[first:]] == list(COMMON_PROPERTIES)
