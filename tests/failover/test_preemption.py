"""SIGTERM from outside to one node: its workers get their grace, and it costs nobody a restart."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failover.nodes import (
    ABORTION,
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

pytestmark = pytest.mark.full

# Saves a checkpoint on SIGTERM; ends when the job has the size it shall end with. A worker whose
# peer is gone fails as it would in a collective.
WORKER = """\
node = os.environ["NODE"]


def save(number, frame):
    leave("checkpoint", node=node)
    sys.exit(0)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


signal.signal(signal.SIGTERM, save)
leave(
    "start",
    node=node,
    world_size=world_size,
    restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
)
if world_size == END_WITH and os.path.exists(os.path.join(DIRECTORY, "preempted")):
    leave("end")
    sys.exit()
paths = [os.path.join(DIRECTORY, f"start.{r}.{attempt}.json") for r in range(world_size)]
while not all(map(os.path.exists, paths)):
    time.sleep(0.002)
pids = [json.load(open(path))["pid"] for path in paths]
leave("ready", node=node)
while not any(map(gone, pids)):
    time.sleep(0.002)
sys.exit("Connection closed by peer")
"""

SLOW_EXTENSION = """\
import pathlib, time
from dlrover_cli.contracts import DynamicAgentFailoverExtension


class Slow(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, info):
        pathlib.Path(__file__).with_name("asked").touch()
        time.sleep(600)
"""


@pytest.fixture
def job(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, outside_store: int
) -> Callable[..., Nodes]:
    """Two nodes that are both at work; one failure, and the extension would abort."""

    def begin(nnodes: str, end_with: int, workers: int = 1) -> Nodes:
        nodes = nodes_of(
            start,
            tmp_path,
            extension(scripts, ABORTION),
            f"--nproc-per-node={workers}",
            nnodes=nnodes,
            store=outside_store,
        )
        script = scripts.write("preempted.py", WORKER, END_WITH=end_with * workers)
        for name in "ab":
            nodes.join(name, script)
        complete = 2 * workers
        eventually(lambda: is_complete(scripts, complete), 30)
        (tmp_path / "preempted").touch()
        return nodes

    return begin


def test_with_enough_nodes_the_other_one_goes_on_without_a_restart_charged(
    job: Callable[..., Nodes], scripts: Scripts
) -> None:
    nodes = job("1:2", end_with=1)
    preempted, other = nodes.lives.values()
    preempted.running.signal(signal.SIGTERM)
    nodes.finish()
    assert_left_on_request(preempted, scripts)
    assert other.codes == [0], other
    assert_nothing_spent(other, scripts)


def test_below_the_minimum_the_other_one_waits_for_it_to_come_back(
    job: Callable[..., Nodes], scripts: Scripts
) -> None:
    nodes = job("2", end_with=2)
    preempted, other = nodes.lives.values()
    preempted.running.signal(signal.SIGTERM)
    nodes.finish_these([preempted])
    assert_left_on_request(preempted, scripts)
    nodes.launch(preempted)
    nodes.finish()
    assert preempted.codes[1:] == [0], preempted
    assert other.codes == [0], other
    assert_nothing_spent(other, scripts)
    assert preempted.numbers == other.numbers


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_system_may_signal_the_workers_as_well(
    workers: int, job: Callable[..., Nodes], scripts: Scripts
) -> None:
    nodes = job("1:2", end_with=1, workers=workers)
    preempted, other = nodes.lives.values()
    for fact in scripts.facts("ready"):
        if fact["node"] == "a" and is_latest(fact, scripts):
            os.kill(fact["pid"], signal.SIGTERM)
    preempted.running.signal(signal.SIGTERM)
    nodes.finish()
    assert preempted.codes == [143], preempted
    assert other.codes == [0], other
    assert_nothing_spent(other, scripts)


@pytest.mark.parametrize("nnodes", ["1:2", "2"])
def test_a_node_whose_workers_are_done_may_go_while_the_others_finish(
    nnodes: str,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    nodes = nodes_of(start, tmp_path, nnodes=nnodes, store=outside_store)
    script = scripts.write(
        "finishing.py",
        """
        leave("start", restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
        while world_size < 2 or (
            os.environ["NODE"] == "b" and not os.path.exists(os.path.join(DIRECTORY, "go"))
        ):
            time.sleep(0.002)
        leave("end")
        """,
    )
    done, other = (nodes.join(name, script) for name in "ab")
    done.running.wait_for(lambda _: has_recorded(done, "worker_exited"))
    done.running.signal(signal.SIGTERM)
    nodes.finish_these([done])
    (tmp_path / "go").touch()
    nodes.finish_these([other])
    assert done.codes == [143], done
    assert other.codes == [0], other
    assert len(scripts.facts("end")) == 2
    assert other.numbers == done.numbers


@pytest.mark.parametrize("on_error", ["normal", "abort"])
def test_a_node_that_is_stopped_while_it_decides_takes_the_failure_with_it(
    on_error: str,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_EXTENSION)
    nodes = nodes_of(
        start,
        tmp_path,
        "--dynamic_failover_extension=slow::Slow",
        f"--failover_on_error={on_error}",
        "--failover_timeout=50",
        nnodes="1:2",
        store=outside_store,
    )
    script = faulty_worker(scripts, "exit", victim="a", strikes_at=2)
    decider, other = (nodes.join(name, script) for name in "ab")
    eventually((tmp_path / "asked").exists, 30)
    decider.running.signal(signal.SIGTERM)
    nodes.finish(timeout=30)
    assert decider.codes == [143], decider
    assert other.codes == [0], other
    assert_nothing_spent(other, scripts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_that_end_the_launcher_cost_the_other_node_nothing_either(
    number: signal.Signals, job: Callable[..., Nodes], scripts: Scripts
) -> None:
    nodes = job("1:2", end_with=1)
    left, other = nodes.lives.values()
    left.running.signal(number)
    nodes.finish()
    assert left.codes == [128 + number], left
    assert other.codes == [0], other
    assert_nothing_spent(other, scripts)


def assert_left_on_request(life: Life, scripts: Scripts) -> None:
    assert life.codes == [143], life
    assert [fact["node"] for fact in scripts.facts("checkpoint")].count(life.name) == 1
    result = life.runs[0].result
    assert result["outcome"] == "signalled"
    assert "SIGTERM" in result["reason"]


def assert_nothing_spent(life: Life, scripts: Scripts) -> None:
    """No failure was charged: the numbers count starts only, in the events and in the workers."""
    assert life.numbers == [(attempt, 0, 0) for attempt in range(len(life.numbers))]
    assert {fact["restart_count"] for fact in scripts.facts("start")} == {0}
    departures = [each for each in life.decisions() if "was stopped by" in each["reason"]]
    [departure] = departures
    assert departure["trigger"] == "membership"
    assert departure["action"] == "admit"
    assert departure["strategy"] is None
    assert departure["backoff"] == 0


def is_complete(scripts: Scripts, world_size: int) -> bool:
    """Whether so many workers are ready in the latest attempt."""
    ready = scripts.facts("ready")
    return bool(ready) and [f["attempt"] for f in ready].count(ready[-1]["attempt"]) == world_size


def is_latest(fact: dict[str, int], scripts: Scripts) -> bool:
    return bool(fact["attempt"] == scripts.facts("ready")[-1]["attempt"])
