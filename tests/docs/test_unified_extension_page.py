"""docs/how-to/unified-extension.md: its commands do what it shows, its words are the code's."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.contracts.manager import Deployment, EngineMode, Ground, ManagerView, NodeInfo
from dlrover_cli.manager.extensions import GROUP
from dlrover_cli.manager.job import ManagerOptions
from dlrover_cli.manager.placing import Demand
from dlrover_cli.manager.relaunching import DEADLINE_SECONDS
from tests.docs.console import Block, prepare, read_page, run_block
from tests.docs.test_job_plugins_page import PIP
from tests.harness.launcher import Finished

pytestmark = pytest.mark.full  # real jobs, one after the other

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "unified-extension.md")
EXAMPLES = ROOT / "examples" / "unified_extension"


@pytest.fixture
def typing(tmp_path: Path) -> dict[str, str]:
    """An environment in which `pip` and `python` are harmless, and those of this project."""
    programs, site = tmp_path / "bin", tmp_path / "site"
    programs.mkdir()
    pip = programs / "pip"
    pip.write_text(PIP.format(python=sys.executable, site=site))
    pip.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "PYTHONPATH": str(site)}


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path, typing: dict[str, str]
) -> None:
    folder = tmp_path / "examples"
    prepare(PAGE, EXAMPLES, folder)
    problems = run_block(block, folder, launch, typing)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name, text", PAGE.files)
def test_a_file_on_the_page_is_a_part_of_the_example(name: str, text: str) -> None:
    assert text in (EXAMPLES / name).read_text()


def test_what_the_page_names_is_there() -> None:
    assert f"`{GROUP}`" in PAGE.text
    assert f"It has {DEADLINE_SECONDS:g} seconds" in PAGE.text
    assert ManagerOptions(Demand(1, 1, {})).node_timeout == 600  # "for ten minutes"
    node, deployment = NodeInfo("1"), Deployment()
    for row in ("id", "hostname", "ip_address", "envs", "resources"):
        assert f"`{row}`" in PAGE.text
        assert hasattr(node, row)
    for name in re.findall(r"`deployment\.(\w+)`", PAGE.text):
        assert hasattr(deployment, name)
    for enum, member in re.findall(r"`(Ground|EngineMode)\.(\w+)`", PAGE.text):
        assert member in {"Ground": Ground, "EngineMode": EngineMode}[enum].__members__
    for name in ("run_id", "nodes", "deployment"):
        assert hasattr(ManagerView, name)
