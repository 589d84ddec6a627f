"""docs/how-to/ray.md: its commands do what it shows."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.console import Block, prepare, read_page, run_block
from tests.engines.ray.jobs import RayJobs
from tests.harness.launcher import Finished, Launcher

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

PAGE = read_page(Path(__file__).parents[3] / "docs" / "how-to" / "ray.md")


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, jobs: RayJobs, launcher: Launcher, tmp_path: Path
):
    def launch(argv: list[object], *, command: list[str], **options: Any) -> Finished:
        return launcher.launch(argv, command=jobs.engine.command(*command), timeout=150, **options)

    (tmp_path / "nothing").mkdir()
    prepare(PAGE, tmp_path / "nothing", tmp_path / "typed")
    path = f"{jobs.engine.programs}:/usr/bin:/bin"
    environ = {**jobs.engine.environ(), "PATH": path}
    problems = run_block(block, tmp_path / "typed", launch, environ)
    assert not problems, "\n".join(problems)
