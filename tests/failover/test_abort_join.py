"""Nodes that come and go: after an abort, below the minimum, above it; and who hosts the store."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.failover.nodes import (
    ABORTION,
    GLOBAL,
    NODE,
    Life,
    Nodes,
    extension,
    faulty_worker,
    has_recorded,
    nodes_of,
)
from tests.harness.launcher import Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import QUICK

pytestmark = pytest.mark.full

# Fails once, when the job is complete; later it is done when it is complete again.
SHRINKING_WORKER = """\
node = os.environ["NODE"]
hit, shrunk = os.path.join(DIRECTORY, "hit"), os.path.join(DIRECTORY, "shrunk")
if world_size < FULL:
    if os.path.exists(hit):
        open(shrunk, "w").close()
elif os.path.exists(shrunk):
    leave("end")
    sys.exit()
elif node == VICTIM:
    open(hit, "w").close()
    os._exit(7)
while True:
    time.sleep(60)
"""

FAILS_ON_COMMAND = """\
leave("start")
while attempt == 0:
    if os.environ["NODE"] == "a" and os.path.exists(os.path.join(DIRECTORY, "go")):
        os._exit(7)
    time.sleep(0.002)
"""


@pytest.fixture
def aborting(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> Callable[..., Nodes]:
    """Two nodes whose job was aborted."""

    def abort(store: int | None, conf: str = "join_timeout=60,last_call_timeout=1") -> Nodes:
        option = extension(scripts, ABORTION)
        nodes = nodes_of(start, tmp_path, option, nnodes="2", store=store, conf=conf)
        script = faulty_worker(scripts, "exit", victim="a")
        for name in "ab":
            nodes.join(name, script)
        assert [life.codes for life in nodes.finish()] == [[82], [82]]
        return nodes

    return abort


def test_a_node_that_joins_after_an_abort_is_told_so_and_exits_at_once(
    aborting: Callable[..., Nodes], scripts: Scripts, outside_store: int
) -> None:
    nodes = aborting(outside_store)
    late = nodes.join("late", scripts.directory / "faulty.py")
    nodes.finish_these([late])
    [finished] = late.endings
    assert finished.returncode == 82, finished
    # Joining takes until the time-out of 60 s if nobody else comes.
    assert finished.duration < 10
    assert "was aborted" in finished.stderr
    assert late.runs[0].result["outcome"] == "aborted"
    assert not late.runs[0].events("workers_started")


def test_a_job_with_another_id_is_not_aborted_by_the_first_one(
    aborting: Callable[..., Nodes],
    scripts: Scripts,
    outside_store: int,
    start: Callable[..., Running],
    tmp_path: Path,
) -> None:
    aborting(outside_store)
    others = nodes_of(start, tmp_path / "other", nnodes="2", store=outside_store)
    for name in "ab":
        others.join(name, scripts.hello())
    assert [life.codes for life in others.finish()] == [[0], [0]]


def test_where_an_agent_hosted_the_store_a_late_node_only_finds_nobody(
    aborting: Callable[..., Nodes], scripts: Scripts
) -> None:
    nodes = aborting(None, "join_timeout=3,last_call_timeout=1")
    late = nodes.join("late", scripts.directory / "faulty.py")
    nodes.finish_these([late])
    assert late.codes == [80], late
    assert late.runs[0].result["outcome"] == "rendezvous_failed"


def test_an_abort_does_not_wait_for_a_node_that_is_gone(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, ABORTION), nnodes="3", store=outside_store)
    script = scripts.write(
        "waiting.py",
        """
        leave("start")
        while os.environ["NODE"] != "a" or not os.path.exists(os.path.join(DIRECTORY, "go")):
            time.sleep(0.002)
        os._exit(7)
        """,
    )
    gone, *others = (nodes.join(name, script) for name in "cab")
    eventually(lambda: len(scripts.facts("start")) == 3, 30)
    gone.running.kill()
    (tmp_path / "go").touch()
    nodes.finish()
    for other in others:
        assert other.codes == [82], other
    # Leaving a store that others may still need takes two seconds.
    assert seconds_to_stop(others) < 2


def test_an_abort_does_not_wait_for_the_stack_of_a_stopped_worker(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    options = ("--hang_timeout=1", extension(scripts, ABORTION))
    nodes = nodes_of(start, tmp_path, *options, nnodes="2", store=outside_store)
    script = scripts.write(
        "stopped.py",
        """
        import dlrover_cli
        dlrover_cli.heartbeat()
        if os.environ["NODE"] == "a":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)
        """,
    )
    lives = [nodes.join(name, script) for name in "ab"]
    nodes.finish()
    for life in lives:
        assert life.codes == [82], life
        assert life.decisions()[0]["trigger"] == "hang"
    # A worker that does not answer is waited for two seconds before there is a decision.
    assert seconds_to_stop(lives) < 2


def test_a_spare_node_that_waits_is_told_of_an_abort_as_well(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, ABORTION), nnodes="2", store=outside_store)
    script = scripts.write("on_command.py", FAILS_ON_COMMAND)
    spare = start_with_a_spare_node(nodes, script, scripts)
    (tmp_path / "go").touch()
    nodes.finish()
    assert [life.codes for life in nodes.lives.values()] == [[82]] * 3, nodes.lives
    assert "was aborted" in spare.endings[0].stderr


def test_a_spare_node_does_not_make_a_full_job_start_again_and_again(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, "--max-restarts=1", nnodes="2", store=outside_store)
    script = scripts.write("on_command.py", FAILS_ON_COMMAND)
    start_with_a_spare_node(nodes, script, scripts)
    (tmp_path / "go").touch()
    lives = nodes.finish()
    # Which two of the three run the second attempt is for the rendezvous to say.
    assert sorted(number for life in lives for number in life.numbers) == [
        (0, 0, 0),
        (0, 0, 0),
        (1, 1, 0),
        (1, 1, 0),
    ]
    for life in lives:
        if life.numbers[-1:] == [(1, 1, 0)]:
            assert life.codes == [0], life


def test_a_node_that_died_without_a_word_is_replaced_when_another_comes(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, nnodes="2", store=outside_store, conf=QUICK)
    script = scripts.write(
        "second_time.py",
        """
        leave("start", restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
        if attempt == 0:
            time.sleep(60)
        """,
    )
    dead, other = (nodes.join(name, script) for name in "ab")
    eventually(lambda: len(scripts.facts("start")) == 2, 30)
    dead.running.kill()
    nodes.finish_these([dead])
    nodes.launch(dead)
    nodes.finish()
    assert dead.codes == [-9, 0], dead
    assert other.codes == [0], other
    # Nobody's worker failed, so nothing is charged.
    assert other.numbers == [(0, 0, 0), (1, 0, 0)]


def test_below_the_minimum_the_others_wait_for_the_replacement(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, NODE), nnodes="2", store=outside_store)
    script = faulty_worker(scripts, "exit", victim="a")
    victim, other = (nodes.join(name, script) for name in "ab")
    nodes.finish_these([victim], relaunch=False)
    assert victim.codes == [81], victim
    other.running.wait_for(lambda _: has_recorded(other, "rendezvous_started", 2))
    assert other.numbers == [(0, 0, 0)]
    nodes.launch(victim)
    nodes.finish()
    assert victim.codes == [81, 0], victim
    assert other.codes == [0], other
    assert victim.numbers == other.numbers == [(0, 0, 0), (1, 0, 0)]


def test_below_the_minimum_nobody_waits_beyond_the_join_timeout(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(
        start,
        tmp_path,
        extension(scripts, NODE),
        nnodes="2",
        store=outside_store,
        conf="join_timeout=3,last_call_timeout=1",
    )
    script = faulty_worker(scripts, "exit", victim="a")
    victim, other = (nodes.join(name, script) for name in "ab")
    nodes.finish(relaunch=False)
    assert victim.codes == [81], victim
    assert other.codes == [80], other
    assert other.runs[0].result["outcome"] == "rendezvous_failed"


def test_with_enough_nodes_the_others_go_on_and_admit_the_replacement(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, NODE), nnodes="2:3", store=outside_store)
    script = scripts.write("shrinking.py", SHRINKING_WORKER, FULL=3, VICTIM="a")
    victim, *others = (nodes.join(name, script) for name in "abc")
    nodes.finish_these([victim], relaunch=False)
    assert victim.codes == [81], victim
    eventually((tmp_path / "shrunk").exists, 30)
    nodes.launch(victim)
    nodes.finish()
    assert victim.codes == [81, 0], victim
    for other in others:
        assert other.codes == [0], other
        assert [each["action"] for each in other.decisions()][-2:] == ["replace_node", "admit"]
        assert other.decisions()[-1]["trigger"] == "membership"
    # A node that is replaced or admitted costs nobody a restart, and all count alike.
    attempts = {number for life in nodes.lives.values() for number in life.numbers}
    assert attempts == {(attempt, 0, 0) for attempt in range(len(attempts))}
    ended = scripts.facts("end")
    assert {fact["attempt"] for fact in ended} == {max(attempts)[0]}
    assert len(ended) == 3


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.full)])
def test_a_node_that_hosts_the_store_is_not_replaced_but_all_restart(
    count: int, start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, NODE), nnodes=str(count), store=None)
    script = faulty_worker(scripts, "exit", victim="a")
    host = nodes.join("a", script)
    host.running.wait_for(lambda _: has_recorded(host, "rendezvous_started"))
    for name in "bc"[: count - 1]:
        nodes.join(name, script)
    nodes.finish()
    for life in nodes.lives.values():
        assert life.codes == [0], life
        assert life.numbers == [(0, 0, 0), (1, 0, 1)]
        [decision] = life.decisions()
        assert decision["strategy"] == NODE
        assert decision["action"] == "restart_job"
        assert "hosts the store" in decision["reason"]


@pytest.mark.parametrize(
    "strategy, action, codes, numbers",
    [
        (NODE, "replace_node", [81, 0], (1, 0, 0)),
        pytest.param(GLOBAL, "restart_job", [0], (1, 0, 1), marks=pytest.mark.full),
        pytest.param(ABORTION, "abort", [82], None, marks=pytest.mark.full),
    ],
)
def test_a_node_beside_the_one_that_hosts_the_store_is_treated_as_anywhere(
    strategy: str,
    action: str,
    codes: list[int],
    numbers: tuple[int, int, int] | None,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
) -> None:
    nodes = nodes_of(start, tmp_path, extension(scripts, strategy), nnodes="2", store=None)
    script = faulty_worker(scripts, "exit", victim="b")
    host = nodes.join("a", script)
    host.running.wait_for(lambda _: has_recorded(host, "rendezvous_started"))
    victim = nodes.join("b", script)
    nodes.finish()
    assert victim.codes == codes, victim
    assert host.codes == codes[-1:], host
    for life in (host, victim):
        [decision] = life.decisions()
        assert decision["action"] == action
        assert life.numbers == [(0, 0, 0), *([numbers] if numbers else [])]


def start_with_a_spare_node(nodes: Nodes, script: Path, scripts: Scripts) -> Life:
    """Start two nodes that fill the job, then a third that the rendezvous keeps as a spare."""
    for name in "ab":
        nodes.join(name, script)
    eventually(lambda: len(scripts.facts("start")) == 2, 30)
    spare = nodes.join("c", script)
    eventually(lambda: has_recorded(spare, "rendezvous_started"), 30)
    return spare


def seconds_to_stop(lives: Iterable[Life]) -> float:
    """From the first node's decision to the last node's end."""
    events = [event for life in lives for event in life.runs[0].events()]
    decided = min(event["time"] for event in events if event["kind"] == "decision")
    ended = max(event["time"] for event in events if event["kind"] == "run_finished")
    return float(ended - decided)
