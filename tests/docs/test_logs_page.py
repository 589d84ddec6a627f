"""docs/how-to/logs.md: its commands do what it shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.config.derive import LOG_PREFIX_NAMES
from dlrover_cli.workers.log_file import KEPT_AT_EACH_END
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

PAGE = read_page(Path(__file__).parents[2] / "docs" / "how-to" / "logs.md")


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def test_every_name_of_a_prefix_is_on_the_page() -> None:
    assert [name for name in LOG_PREFIX_NAMES if f"`${{{name}}}`" not in PAGE.text] == []


def test_the_sizes_are_those_of_the_code() -> None:
    assert f"last {KEPT_AT_EACH_END >> 20} MiB" in PAGE.text
    assert f"beyond {3 * KEPT_AT_EACH_END >> 20} MiB" in PAGE.text
