"""Budgets, back-off, rules and their order in real jobs: what is spent, refilled and waited for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failover.nodes import (
    ABORTION,
    GLOBAL,
    NODE,
    NORMAL,
    Life,
    extension,
    faulty_worker,
    nodes_of,
    one_node,
)
from tests.harness.launcher import Running
from tests.harness.scripts import Scripts

pytestmark = pytest.mark.full

ALWAYS = 99
RULES = """\
[[rules]]
name = "bad-data"
when = {exit_code = 7}
strategy = "abort"
reason = "the same data again"
"""


@pytest.mark.parametrize(
    "strategy, option, starts",
    [
        (NODE, "--max_node_relaunches=1", [(0, 0, 0), (1, 0, 0)]),
        (GLOBAL, "--max_job_restarts=1", [(0, 0, 0), (1, 0, 1)]),
        (NODE, "--max_node_relaunches=0", [(0, 0, 0)]),
        (GLOBAL, "--max_job_restarts=0", [(0, 0, 0)]),
    ],
)
def test_a_verdict_whose_budget_is_spent_fails_the_job_with_83(
    strategy: str,
    option: str,
    starts: list[tuple[int, int, int]],
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
) -> None:
    nodes = one_node(start, tmp_path, option, "--max-restarts=5", extension(scripts, strategy))
    life = nodes.join("a", faulty_worker(scripts, "exit", victim="a", attempts=ALWAYS))
    nodes.finish()
    assert life.codes == [83], life
    assert life.numbers == starts
    assert last_decision(life)["action"] == "fail"
    assert last_decision(life)["strategy"] == strategy
    result = life.runs[-1].result
    assert result["outcome"] == "failed"
    assert result["failure"]["workers"][0]["exit_code"] == 7


@pytest.mark.parametrize(
    "strategy, option, codes, following",
    [
        (NODE, "--max_node_relaunches=1", [81, 83], (1, 0, 0)),
        (GLOBAL, "--max_job_restarts=1", [83], (1, 0, 1)),
    ],
)
def test_a_spent_budget_fails_the_job_on_every_node(
    strategy: str,
    option: str,
    codes: list[int],
    following: tuple[int, int, int],
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    options = (option, extension(scripts, strategy))
    nodes = nodes_of(start, tmp_path, *options, nnodes="2", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="a", attempts=ALWAYS)
    victim, other = (nodes.join(name, script) for name in "ab")
    nodes.finish()
    assert victim.codes == codes, victim
    assert other.codes == [83], other
    for life in (victim, other):
        assert life.numbers == [(0, 0, 0), following]
        assert last_decision(life)["exit_code"] == 83


def test_spent_restarts_end_every_node_with_the_root_causes_own_code(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, "--max-restarts=1", nnodes="2", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="a", attempts=ALWAYS, exit_code=41)
    for name in "ab":
        nodes.join(name, script)
    for life in nodes.finish():
        assert life.codes == [41], life
        assert life.numbers == [(0, 0, 0), (1, 1, 0)]
        assert last_decision(life)["decided_by"] == "default"


@pytest.mark.parametrize("count", [1, 2])
def test_a_hang_with_no_restart_left_ends_with_84(
    count: int, start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = (
        one_node(start, tmp_path, "--hang_timeout=1")
        if count == 1
        else nodes_of(start, tmp_path, "--hang_timeout=1", nnodes="2", store=outside_store)
    )
    script = faulty_worker(scripts, "hang", victim="a")
    for name in "ab"[:count]:
        nodes.join(name, script)
    for life in nodes.finish():
        assert life.codes == [84], life
        assert life.numbers == [(0, 0, 0)]
        assert last_decision(life)["trigger"] == "hang"


def test_global_fills_the_restart_budget_again(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nname = "again"\nwhen = {same_failure = 2}\nstrategy = "global"\nbackoff = 0\n'
    )
    nodes = one_node(start, tmp_path, "--max-restarts=1", f"--failover_rules={rules}")
    life = nodes.join("a", faulty_worker(scripts, "exit", victim="a", attempts=3))
    nodes.finish()
    assert life.codes == [0], life
    assert life.numbers == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 0, 2)]


def test_progress_refills_the_restart_budget(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    script = scripts.write(
        "progress.py",
        """
        import dlrover_cli
        until = time.monotonic() + (0.8 if attempt != 2 else 0)
        while time.monotonic() < until:
            dlrover_cli.heartbeat()
            time.sleep(0.01)
        sys.exit(0 if attempt == 4 else 7)
        """,
    )
    nodes = one_node(start, tmp_path, "--max-restarts=2", "--restart_budget_reset=500ms")
    life = nodes.join("a", script)
    nodes.finish()
    assert life.codes == [0], life
    # Only the third attempt fails too soon to have earned anything.
    assert life.numbers == [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 1, 0)]


def test_attempts_that_come_to_nothing_wait_longer_each_time(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    nodes = one_node(start, tmp_path, "--max-restarts=3")
    life = nodes.join("a", faulty_worker(scripts, "exit", victim="a", attempts=3))
    nodes.finish()
    assert life.codes == [0], life
    assert [each["backoff"] for each in life.decisions()] == [0, 0.5, 1.0]
    assert_waited(life)


def test_a_rule_says_how_long_to_wait(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nname = "slowly"\nstrategy = "normal"\nbackoff = "700ms"\n')
    options = ("--max-restarts=2", f"--failover_rules={rules}")
    nodes = nodes_of(start, tmp_path, *options, nnodes="2", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="a", attempts=2)
    for name in "ab":
        nodes.join(name, script)
    for life in nodes.finish():
        assert life.codes == [0], life
        assert [each["backoff"] for each in life.decisions()] == pytest.approx([0.7, 0.7])
        assert_waited(life)


@pytest.mark.parametrize(
    "opinion, exit_code, strategy, decided_by, codes",
    [
        ("none", 7, ABORTION, "rule 'bad-data'", [82]),
        ("none", 8, NORMAL, "default", [0]),
        (GLOBAL, 7, GLOBAL, "extension exts::Global", [0]),
    ],
)
def test_rules_are_asked_when_the_extension_has_no_opinion(
    opinion: str,
    exit_code: int,
    strategy: str,
    decided_by: str,
    codes: list[int],
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    options = ("--max-restarts=1", f"--failover_rules={rules}", extension(scripts, opinion))
    nodes = nodes_of(start, tmp_path, *options, nnodes="2", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="a", exit_code=exit_code)
    for name in "ab":
        nodes.join(name, script)
    for life in nodes.finish():
        assert life.codes == codes, life
        [decision] = life.decisions()
        assert decision["strategy"] == strategy
        assert decision["decided_by"] == decided_by


def last_decision(life: Life) -> dict[str, object]:
    return life.decisions()[-1]


def assert_waited(life: Life) -> None:
    """Between a decision and the next start there is at least the wait that was decided."""
    events = [event for run in life.runs for event in run.events()]
    decisions = [event for event in events if event["kind"] == "decision"]
    starts = [event for event in events if event["kind"] == "workers_started"][1:]
    for decision, started in zip(decisions, starts, strict=True):
        assert started["time"] - decision["time"] >= decision["data"]["backoff"]
