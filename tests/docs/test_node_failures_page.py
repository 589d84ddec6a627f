"""docs/explanation/node-failures.md: a run tells the story of the page, in the same order."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import LaunchSession, Running
from tests.manager.managed_job import JobStarter

pytestmark = pytest.mark.full  # real jobs, one after the other

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "node-failures.md").read_text()
ROW = re.compile(r"^\| *[-\d.]+ s \| (?P<who>\S+) \| `(?P<kind>\w+)` \|", re.MULTILINE)


def test_a_lost_node_leads_to_what_the_timeline_shows(
    start: Callable[..., Running], launch_session: LaunchSession, tmp_path: Path
) -> None:
    job = JobStarter(start, launch_session, tmp_path)("n1 n2 n3")
    job.wait_for_steps(attempt=0, ranks=2)
    before = {who: len(job.events(agent=who)) for who in ("manager", "n1.0")} | {"n3.2": 0}
    job.order("lose_node n2")
    job.wait_for_steps(attempt=1, ranks=2)
    finished = job.finish()
    assert finished.returncode == 0, finished
    told = [found.groups() for found in ROW.finditer(TEXT)]
    assert {who for who, _ in told} == set(before)
    for who, seen in before.items():
        kinds = iter([event["kind"] for event in job.events(agent=who)[seen:]])
        for kind in [kind for each, kind in told if each == who]:
            assert kind in kinds, f"{who} has no {kind} at that place"  # looks on from there
    for line in re.findall(r"^dlrover-run: .*$", TEXT, re.MULTILINE):
        assert line in finished.stderr


def test_every_event_of_the_manager_is_explained() -> None:
    source = (ROOT / "dlrover_cli" / "manager").glob("*.py")
    recorded = set(re.findall(r'record\(\s*"(\w+)"', "".join(p.read_text() for p in source)))
    table = TEXT.partition("| event of the manager |")[2]
    first_cells = "".join(re.findall(r"^\| ([^|]+)", table, re.MULTILINE))
    explained = set(re.findall(r"`(\w+)`", first_cells))
    assert recorded - {"signal"} <= explained
