"""Four strategies, one to three nodes, six ways to fail: every node does the right thing.

A dozen cells run by default. With `-m full` so many more that every strategy has met every fault
and every number of nodes, and every fault every number; with `-m soak` all the others.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.failover.nodes import (
    ABORTION,
    EXTENSION_OF,
    GLOBAL,
    NODE,
    NORMAL,
    Life,
    Nodes,
    Numbers,
    extension,
    faulty_worker,
    nodes_of,
    one_node,
)
from tests.harness.launcher import Running
from tests.harness.scripts import Scripts

STRATEGIES = (NORMAL, NODE, GLOBAL, ABORTION)
FAULTS = ("exception", "exit", "SIGKILL", "SIGSEGV", "hang", "start-up")
BY_DEFAULT = {
    (NORMAL, 1, "exception"),
    (NODE, 1, "exit"),
    (GLOBAL, 1, "SIGKILL"),
    (ABORTION, 1, "hang"),
    (NORMAL, 2, "SIGSEGV"),
    (NODE, 2, "exception"),
    (GLOBAL, 2, "hang"),
    (ABORTION, 2, "start-up"),
    (NORMAL, 3, "start-up"),
    (NODE, 3, "SIGKILL"),
    (GLOBAL, 3, "exit"),
    (ABORTION, 3, "exit"),
}
TRIGGERS = {
    "exception": "exception",
    "exit": "exit",
    "SIGKILL": "signal",
    "SIGSEGV": "signal",
    "hang": "hang",
    "start-up": "start-up",
}
ROOT_CAUSES: dict[str, dict[str, object]] = {
    "exception": {
        "exit_code": 1,
        "exception_type": "RuntimeError",
        "message": "broken on purpose",
        "phase": "training",
    },
    "exit": {"exit_code": 7, "exception_type": None, "phase": "training"},
    "SIGKILL": {"signal": 9, "phase": "training", "oom": False},
    "SIGSEGV": {"signal": 11, "message": "Segmentation fault", "phase": "training"},
    "hang": {"exit_code": None, "signal": None},
    "start-up": {"exit_code": 1, "exception_type": "ModuleNotFoundError", "phase": "start-up"},
}
ACTIONS = {
    NORMAL: "restart_workers",
    NODE: "replace_node",
    GLOBAL: "restart_job",
    ABORTION: "abort",
}
# Of the attempt after the fault.
FOLLOWING: dict[str, Numbers] = {NORMAL: (1, 1, 0), NODE: (1, 0, 0), GLOBAL: (1, 0, 1)}
VICTIM = "a"


def cells() -> Iterator[Any]:
    for strategy in STRATEGIES:
        for count in (1, 2, 3):
            for fault in FAULTS:
                cell = (strategy, count, fault)
                marks = () if cell in BY_DEFAULT else (_tier(cell),)
                name = f"{strategy.partition('_')[0].lower()}-{count}-{fault}"
                yield pytest.param(*cell, id=name, marks=marks)


def _tier(cell: tuple[str, int, str]) -> pytest.MarkDecorator:
    strategy, count, fault = cell
    turn = STRATEGIES.index(strategy) + FAULTS.index(fault)
    return pytest.mark.full if count == turn % 3 + 1 else pytest.mark.soak


@pytest.mark.parametrize("strategy, count, fault", list(cells()))
def test_a_failure_leads_to_what_was_decided_on_every_node(
    strategy: str,
    count: int,
    fault: str,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    options = ["--max-restarts=1", extension(scripts, strategy)]
    if fault == "hang":
        options.append("--hang_timeout=2")
    nodes = (
        one_node(start, tmp_path, *options)
        if count == 1
        else nodes_of(start, tmp_path, *options, nnodes=str(count), store=outside_store)
    )
    start_nodes(nodes, count, faulty_worker(scripts, fault, VICTIM))
    lives = nodes.finish(timeout=60)

    victim = where_it_happened(lives, fault)
    assert_exit_codes(lives, victim, strategy, count)
    assert_numbers(lives, victim, strategy, count, scripts)
    assert_decision(lives, victim, strategy, fault)
    assert_results(lives, strategy)
    assert_only_the_workers_traceback(lives, fault)


@pytest.mark.parametrize("strategy", [NORMAL, NODE])
def test_two_nodes_that_fail_at_once_are_one_failure(
    strategy: str,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    options = ("--max-restarts=1", extension(scripts, strategy))
    nodes = nodes_of(start, tmp_path, *options, nnodes="3", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="ab")
    lives = [nodes.join(name, script) for name in "abc"]
    nodes.finish()
    codes = [[0], [0], [0]] if strategy == NORMAL else [[0], [0], [81, 0]]
    assert sorted(life.codes for life in lives) == codes, lives
    for life in lives:
        assert life.numbers == [(0, 0, 0), FOLLOWING[strategy]]
        assert life.decisions() == lives[0].decisions()


def test_a_rank_that_fails_because_of_another_node_is_not_the_cause(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    script = scripts.write(
        "collateral.py",
        """
        leave("start")
        path = os.path.join(DIRECTORY, f"start.{1 - rank}.0.json")
        while not os.path.exists(path):
            time.sleep(0.002)
        if os.environ["NODE"] == "a":
            os.kill(os.getpid(), signal.SIGKILL)
        peer = json.load(open(path))["pid"]
        while os.path.exists(f"/proc/{peer}/fd/0"):
            time.sleep(0.002)
        raise RuntimeError("Connection closed by peer")
        """,
    )
    nodes = nodes_of(start, tmp_path, nnodes="2", store=outside_store)
    cause, other = (nodes.join(name, script) for name in "ab")
    nodes.finish()
    for life in (cause, other):
        assert life.codes == [128 + 9], life
        [decision] = life.decisions()
        assert decision["trigger"] == "signal"
    [event] = cause.runs[0].events("decision")
    assert event["node_rank"] == event["data"]["node_rank"]


def start_nodes(nodes: Nodes, count: int, script: Path) -> None:
    """The victim, with two workers, and nodes with one worker each."""
    for name in "abc"[:count]:
        workers = 2 if name == VICTIM else 1
        result = nodes.job.directory / f"result.{name}.json"
        nodes.join(name, f"--nproc-per-node={workers}", f"--result_file={result}", script)


def where_it_happened(lives: list[Life], fault: str) -> Life:
    """The node that reported it: when all ranks hang, any of them may."""
    if fault != "hang":
        return lives[0]
    rank = lives[0].decisions()[0]["node_rank"]
    return next(each for each in lives if each.runs[0].events("decision")[0]["node_rank"] == rank)


def assert_exit_codes(lives: list[Life], victim: Life, strategy: str, count: int) -> None:
    for life in lives:
        if strategy == ABORTION:
            assert life.codes == [82], life
        elif strategy == NODE and life is victim and count > 1:
            assert life.codes == [81, 0], life
        else:
            assert life.codes == [0], life


def assert_numbers(
    lives: list[Life], victim: Life, strategy: str, count: int, scripts: Scripts
) -> None:
    """The numbers are the same in every node's events and in every worker's environment."""
    expected: list[Numbers] = [(0, 0, 0)]
    if strategy != ABORTION:
        expected.append(FOLLOWING[strategy])
    for life in lives:
        assert life.numbers == expected, life
    seen: dict[int, set[tuple[int, int, int]]] = {}
    for fact in scripts.facts("start"):
        numbers = (fact["attempt"], fact["restart_count"], fact["generation"])
        seen.setdefault(fact["rank"], set()).add(numbers)
    assert seen == {rank: set(expected) for rank in range(count + 1)}
    ended = [(fact["rank"], fact["attempt"]) for fact in scripts.facts("end")]
    assert ended == ([] if strategy == ABORTION else [(rank, 1) for rank in range(count + 1)])


def assert_decision(lives: list[Life], victim: Life, strategy: str, fault: str) -> None:
    """One decision, known on every node in the same words, and told by one of them."""
    assert sum(life.acted_first() for life in lives) == 1
    for life in lives:
        [decision] = life.decisions()
        assert decision == lives[0].decisions()[0]
        assert decision["trigger"] == TRIGGERS[fault], decision
        assert decision["strategy"] == strategy
        assert decision["decided_by"] == f"extension {EXTENSION_OF[strategy]}"
        assert decision["action"] == ACTIONS[strategy]
        assert decision["reason"]
        assert decision["verdict_reason"]
        assert 0 <= decision["seconds"] < 10
        assert decision["backoff"] == 0
        assert decision["problems"] == []
        if strategy == ABORTION:
            assert decision["exit_code"] == 82
    happened = victim.runs[0].events("decision")[0]["node_rank"]
    assert victim.decisions()[0]["node_rank"] == happened
    [failure] = victim.runs[0].failures
    assert failure["kind"] == TRIGGERS[fault]
    assert failure["attempt"] == 0
    [cause] = [worker for worker in failure["workers"] if worker["root_cause"]]
    assert ROOT_CAUSES[fault].items() <= cause.items()
    if fault == "hang":
        ranks = {str(worker["global_rank"]) for worker in failure["workers"]}
        assert set(failure["stacks"]) == ranks


def assert_results(lives: list[Life], strategy: str) -> None:
    for life in lives:
        asked_for = life.launchers[-1].state.parent / f"result.{life.name}.json"
        assert json.loads(asked_for.read_text()) == life.runs[-1].result
        for run, finished in zip(life.runs, life.endings, strict=True):
            result = run.result
            assert result["exit_code"] == finished.returncode
            if finished.returncode == 0:
                assert result["outcome"] == "succeeded"
                numbers = (
                    result["attempts"] - 1,
                    result["restart_count"],
                    result["generation"],
                )
                assert numbers == FOLLOWING[strategy]
            else:
                assert result["decision"] == ACTIONS[strategy]
                assert result["failure"]["attempt"] == 0
        assert result["outcome"] == ("aborted" if strategy == ABORTION else "succeeded")


def assert_only_the_workers_traceback(lives: list[Life], fault: str) -> None:
    for life in lives:
        raised = life.name == VICTIM and fault in ("exception", "start-up")
        assert sum(end.stderr.count("Traceback") for end in life.endings) == raised, life
