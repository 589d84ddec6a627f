"""docs/how-to/metrics.md: commands do what it shows; page and dashboard have the right names."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.telemetry.instruments import INSTRUMENTS, Sort
from tests.docs.console import Block, assert_shown, each_block, read_page
from tests.harness.launcher import Finished

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "metrics.md")
DASHBOARD = ROOT / "examples" / "metrics" / "grafana.json"


@pytest.mark.full
@each_block(PAGE)
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    assert_shown(PAGE, block, launch, tmp_path)


def test_the_table_has_every_instrument_with_its_labels() -> None:
    section = PAGE.text.partition("\n## What is measured\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    told = {
        name: tuple(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert told == {each.name: each.labels for each in INSTRUMENTS}


def test_the_dashboard_asks_for_names_that_are_there_and_for_nearly_all() -> None:
    exported = {
        f"dlrover_{each.name}{suffix}"
        for each in INSTRUMENTS
        for suffix in (("_sum", "_count", "_bucket") if each.sort is Sort.HISTOGRAM else ("",))
    }
    asked = set(re.findall(r"dlrover_\w+", DASHBOARD.read_text()))
    assert asked <= exported
    known = {name.removeprefix("dlrover_").removesuffix("_bucket") for name in asked}
    left_out = {each.name for each in INSTRUMENTS if each.sort is not Sort.HISTOGRAM} - known
    assert left_out == {"exit_code"}  # there for a moment only


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
