"""docs/how-to/slurm.md: its commands do what it shows."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.docs.console import Block, prepare, read_page, run_block
from tests.engines.slurm.engine import Slurm
from tests.harness.launcher import Launcher

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

PAGE = read_page(Path(__file__).parents[3] / "docs" / "how-to" / "slurm.md")


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, slurm: Slurm, launcher: Launcher, tmp_path: Path
):
    (tmp_path / "nothing").mkdir()
    prepare(PAGE, tmp_path / "nothing", tmp_path / "typed")
    programs = Path(sys.executable).parent
    environ = {**slurm.environ, "PATH": f"{programs}:{slurm.environ['PATH']}"}
    launch = partial(launcher.launch, timeout=150)
    problems = run_block(block, tmp_path / "typed", launch, environ)
    assert not problems, "\n".join(problems)
