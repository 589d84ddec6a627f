"""Touching live jobs: where their ranks are, and doing something about it, on every node."""

import json
import os
import re
import signal
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.launcher import Running
from tests.harness.scripts import Scripts
from tests.harness.touching import Touch
from tests.harness.waiting import eventually
from tests.integration.jobs import Job, Node, Run, c10d_job, free_port, run_in

Start = Callable[..., Running]

# Rank 1 computes in C and never returns to the interpreter; the others sleep.
ELSEWHERE = """
import collections, itertools, threading
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

def compute():
    leave("start", world_size=world_size)
    collections.deque(itertools.repeat(0), maxlen=0)

def wait():
    leave("start", world_size=world_size)
    time.sleep(600)

print(f"rank {rank} of attempt {attempt}", file=sys.stderr, flush=True)
compute() if rank == 1 else wait()
"""


@pytest.fixture
def touch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Touch:
    return Touch(monkeypatch, capsys)


@pytest.fixture
def script(scripts: Scripts) -> Path:
    return scripts.write("elsewhere.py", ELSEWHERE)


@pytest.fixture
def sockets() -> Iterator[dict[str, str]]:
    """The environment with a short place for control sockets in which no other launcher tidies."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield {"XDG_RUNTIME_DIR": directory}


def await_workers(running: Running, scripts: Scripts, count: int, attempt: int = 0) -> None:
    def have_started(_: Running) -> bool:
        started = [fact for fact in scripts.facts("start") if fact["attempt"] == attempt]
        return len(started) == count

    running.wait_for(have_started, 60)


def socket_of(run: Run) -> Path:
    file = run.node / "control.json"
    eventually(file.exists)
    return Path(json.loads(file.read_text())["socket"])


def dlrover_job(start: Start, directory: Path, *options: object, nnodes: str = "2") -> Job:
    return Job(
        start,
        directory,
        (
            f"--nnodes={nnodes}",
            "--rdzv-backend=dlrover",
            f"--rdzv-endpoint=localhost:{free_port()}",
            "--rdzv-id=job",
            "--local-addr=localhost",
            *options,
        ),
    )


def test_stacks_are_grouped_by_place_even_of_a_rank_in_c(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    running = start(["--standalone", "--nproc-per-node=3", script])
    await_workers(running, scripts, 3)
    state = tmp_path / "state"

    def grouped() -> str:
        code, out, _ = touch(state, "stacks")
        return out if code == 0 and "(0, 2)" in out else ""

    lines = eventually(grouped, what="both ranks in their place").splitlines()
    assert lines[0] == "3 ranks:"
    assert lines[1].startswith("  2 ranks (0, 2): in wait (elsewhere.py:")
    assert lines[2].startswith("  rank 1: in compute (elsewhere.py:")

    code, out, _ = touch(state, "stacks", "--rank", "1", "--full")
    assert code == 0
    assert "in compute\n" in out
    assert "in wait\n" not in out
    assert out.count("hread ") == 2  # the one that sleeps too

    document = touch.document(state, "stacks", "--rank", "1", "--rank", "0")
    assert [group["ranks"] for group in document["groups"]] == [[0], [1]]
    code, _, err = touch(state, "stacks", "--rank", "7")
    assert (code, "no such worker runs: rank 7" in err) == (1, True)

    run = run_in(state)
    [first, *_] = run.events("control_request")
    assert first["data"]["command"] == "stacks"
    assert first["data"]["by"] | {"host": ""} == {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "user": first["data"]["by"]["user"],
        "host": "",
    }
    running.signal(signal.SIGTERM)
    running.finish()


@pytest.mark.parametrize("worker_start", ["warm", "fresh"])
def test_a_script_with_handlers_of_its_own_gives_its_stacks_and_is_not_disturbed(
    start: Start, scripts: Scripts, touch: Touch, tmp_path: Path, worker_start: str
) -> None:
    script = scripts.write(
        "handlers.py",
        """
import signal
def mine(number, frame):
    leave("called", number=number)
def wait():
    leave("start", world_size=world_size)
    while True: time.sleep(0.01)
for number in range(45, 64):
    signal.signal(number, mine)
wait()
""",
    )
    options = ["--standalone", "--nproc-per-node=2", f"--worker_start={worker_start}"]
    running = start([*options, script])
    await_workers(running, scripts, 2)

    def grouped() -> bool:
        code, out, _ = touch(tmp_path / "state", "stacks")
        return code == 0 and "  2 ranks (0, 1): in wait (handlers.py:" in out

    eventually(grouped, what="both ranks in their place")
    assert scripts.facts("called") == []
    os.kill(scripts.facts("start")[0]["pid"], 57)
    eventually(lambda: [fact["number"] for fact in scripts.facts("called")] == [57])
    running.signal(signal.SIGTERM)
    running.finish()


def test_restarting_charges_nothing_and_aborting_ends_for_good(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    running = start(
        ["--standalone", "--nproc-per-node=2", script, "--password", "hush"],
        env={"HF_TOKEN": "hush", "PROXY": "http://me:hush@proxy/"},
    )
    await_workers(running, scripts, 2)
    code, out, _ = touch(state, "restart")
    assert code == 0
    assert "started again as attempt 1; no restart is charged" in out
    await_workers(running, scripts, 2, attempt=1)
    run = run_in(state)
    assert run.numbers() == [(0, 0, 0), (1, 0, 0)]

    dump = tmp_path / "live.zip"
    assert touch(state, "dump", "--out", str(dump))[0] == 0
    assert_is_complete(dump, run, "stacks/rank_0.txt", "stacks/summary.txt")

    path = socket_of(run)
    code, out, _ = touch(state, "abort")
    assert code == 0
    assert "exit code 82, and nothing retries" in out
    ended = running.finish()
    assert ended.returncode == 82, ended
    assert f"aborted by {user_of(run)} with dlrover-job abort" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert run.result["outcome"] == "aborted"
    assert [event["data"]["trigger"] for event in run.events("decision")] == ["operator"] * 2
    assert [event["data"]["command"] for event in run.events("control_answer")] == [
        "restart",
        "abort",
    ]
    assert not path.exists()
    assert not (run.node / "control.json").exists()

    code, _, err = touch(state, "stacks", run.path.name)
    assert code == 1
    assert "is over: FAILED" in err
    assert "dlrover-job why" in err
    code, _, err = touch(state, "restart")
    assert code == 2
    assert "no run is under way" in err
    after = tmp_path / "after.zip"
    assert touch(state, "dump", "--out", str(after))[0] == 0
    assert_is_complete(after, run, "run/result.json")


def user_of(run: Run) -> str:
    user: str = run.events("control_request")[0]["data"]["by"]["user"]
    return user


def assert_is_complete(file: Path, run: Run, *more: str) -> None:
    """Whatever the run directory has is in the dump, and no secret of ours is."""
    with zipfile.ZipFile(file) as dump:
        names = set(dump.namelist())
        node = f"run/nodes/{run.node.name}"
        assert {
            "run/job.json",
            "run/events.jsonl",
            f"{node}/events.jsonl",
            f"{node}/environment.json",
            f"{node}/logs/attempt_0/0/stderr.log",
            *more,
        } <= names
        assert b"rank 0 of attempt 0" in dump.read(f"{node}/logs/attempt_0/0/stderr.log")
        environment = json.loads(dump.read(f"{node}/environment.json"))["environment"]
        assert environment["HF_TOKEN"] == "[redacted]"
        assert [name for name in names if b"hush" in dump.read(name)] == []


def test_a_node_that_waits_for_others_answers_and_aborts(
    start: Start, script: Path, touch: Touch, tmp_path: Path
) -> None:
    node = dlrover_job(start, tmp_path).node(script)
    eventually(lambda: list(node.state.glob("dlrover/runs/*/nodes/*/control.json")), 30)
    run = node.run
    eventually(lambda: run.events("rendezvous_started"))
    code, out, _ = touch(node.state, "restart")
    assert code == 0
    assert "a new attempt follows anyway" in out
    code, _, err = touch(node.state, "stacks")
    assert code == 1
    assert "no workers run: the nodes are in the rendezvous" in err
    code, out, _ = touch(node.state, "node-failover")
    assert code == 1
    assert "nothing is done" in out
    code, out, _ = touch(node.state, "abort")
    assert code == 0
    assert "exit code 82" in out
    assert node.finish().returncode == 82
    assert run.result["outcome"] == "aborted"


def test_two_nodes_answer_as_one_and_are_aborted_together(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    job = dlrover_job(start, tmp_path, "--nproc-per-node=2")
    first, second = job.node(script), job.node(script)
    await_workers(first.running, scripts, 4)
    code, out, err = touch(first.state, "stacks")
    assert code == 0, err
    assert out.splitlines()[0] == "4 ranks on 2 nodes:"
    code, out, err = touch(second.state, "restart")
    assert code == 0, err
    assert "the workers of all 2 nodes are stopped and started again as attempt 1" in out
    await_workers(first.running, scripts, 4, attempt=1)
    expected = [(0, 0, 0), (1, 0, 0)]
    eventually(
        lambda: all(node.run.numbers() == expected for node in job),
        what="both attempts in the journals",
    )
    code, out, err = touch(first.state, "abort")
    assert (code, err) == (0, "")
    job.assert_all_exit_with(82)
    for node in job:
        assert "abort" in [each["data"]["command"] for each in node.run.events("control_request")]


@pytest.mark.full
def test_torchs_own_rendezvous_reaches_all_nodes_as_well(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    job = c10d_job(start, tmp_path, "--nproc-per-node=1", nnodes="2")
    first = job.node(script)
    job.node(script)
    await_workers(first.running, scripts, 2)
    code, out, _ = touch(first.state, "stacks")
    assert (code, out.splitlines()[0]) == (0, "2 ranks on 2 nodes:")
    touch(first.state, "abort")
    job.assert_all_exit_with(82)


@pytest.mark.full
def test_a_node_that_does_not_answer_is_named(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    job = dlrover_job(start, tmp_path, "--nproc-per-node=1")
    first, second = job.node(script), job.node(script)
    await_workers(first.running, scripts, 2)
    assert touch(first.state, "stacks")[0] == 0
    rank = second.run.events("workers_started")[0]["node_rank"]
    second.running.signal(signal.SIGSTOP)
    try:
        code, out, err = touch(first.state, "stacks")
    finally:
        second.running.signal(signal.SIGCONT)
    assert code == 1
    assert out.splitlines()[0] == "1 rank:"
    assert f"node {rank} (" in err
    assert "no answer within" in err
    touch(first.state, "abort")
    job.assert_all_exit_with(82)


@pytest.mark.full
def test_a_single_node_replaces_itself_when_asked_and_stays_the_same_run(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    options = ["--standalone", "--nproc-per-node=2", "--max_node_relaunches=1", script]
    running = start(options, real=True)
    await_workers(running, scripts, 2)
    code, out, _ = touch(state, "node-failover")
    assert code == 0
    assert "the launcher starts itself anew (the only node relaunch" in out.replace(
        "node relaunch 1 of 1", "the only node relaunch"
    )
    await_workers(running, scripts, 2, attempt=1)
    code, out, _ = touch(state, "node-failover")
    assert code == 1
    assert "nothing is done, since the job would fail" in out
    code, _, err = touch(state, "node-failover", "--node", "1")
    assert code == 1
    assert "there is no node 1: the job has node 0" in err
    assert touch(state, "abort")[0] == 0
    assert running.finish().returncode == 82
    assert len(run_in(state).events("node_replaced")) == 1


@pytest.mark.full
def test_one_of_two_nodes_is_replaced_by_a_third(
    start: Start, scripts: Scripts, script: Path, touch: Touch, tmp_path: Path
) -> None:
    job = dlrover_job(start, tmp_path, "--nproc-per-node=1")
    guest = "--rdzv-conf=is_host=0"
    nodes = [job.node(script), job.node(guest, script)]
    await_workers(nodes[0].running, scripts, 2)
    ranks = [node.run.events("workers_started")[0]["node_rank"] for node in nodes]
    hosting, other = nodes
    code, out, _ = touch(hosting.state, "node-failover", "--node", str(ranks[1]))
    assert code == 0
    assert f"node {ranks[1]} leaves with exit code 81" in out
    assert other.finish().returncode == 81
    job.nodes.remove(other)
    third = tmp_path / "third"
    running = start([*job.options, guest, script], env={"XDG_STATE_HOME": str(third)})
    job.nodes.append(Node(running, third))
    await_workers(hosting.running, scripts, 2, attempt=1)
    touch(hosting.state, "abort")
    job.assert_all_exit_with(82)


SLOW = """
def linger(number, frame):
    leave("stopping")
    time.sleep(3)
    os._exit(0)

signal.signal(signal.SIGTERM, linger)
leave("start", world_size=world_size)
time.sleep(600)
"""


@pytest.mark.full
def test_requests_are_answered_while_the_workers_are_being_stopped(
    start: Start, scripts: Scripts, touch: Touch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    running = start(["--standalone", "--nproc-per-node=1", scripts.write("slow.py", SLOW)])
    await_workers(running, scripts, 1)
    assert touch(state, "restart")[0] == 0
    running.wait_for(lambda _: scripts.facts("stopping"))
    code, out, _ = touch(state, "restart")
    assert (code, "the workers are being stopped: a new attempt follows" in out) == (0, True)
    code, out, _ = touch(state, "abort")
    assert (code, "the workers are being stopped; the job is aborted" in out) == (0, True)
    code, out, _ = touch(state, "restart")
    assert (code, "the job is being aborted: nothing else is done" in out) == (1, True)
    assert running.finish().returncode == 82
    assert run_in(state).numbers() == [(0, 0, 0)]  # nothing was started after the abort


@pytest.mark.full
def test_aborting_cuts_a_pause_after_a_failure_short(
    start: Start, scripts: Scripts, touch: Touch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    failing = scripts.write("failing.py", 'leave("start", world_size=1)\nsys.exit(3)\n')
    running = start(["--standalone", "--nproc-per-node=1", "--max-restarts=50", failing])

    def is_pausing(_: Running) -> bool:
        if not list(state.glob("dlrover/runs/*/nodes/*/events.jsonl")):
            return False
        decisions = run_in(state).events("decision")
        return any(event["data"]["backoff"] >= 8 for event in decisions)

    running.wait_for(is_pausing, 60)
    code, out, _ = touch(state, "restart")
    assert code == 0
    assert "a new attempt follows anyway" in out
    assert touch(state, "abort")[0] == 0
    assert running.finish(timeout=6).returncode == 82


@pytest.mark.full
def test_a_killed_launcher_is_told_from_one_that_runs(
    start: Start,
    scripts: Scripts,
    script: Path,
    touch: Touch,
    tmp_path: Path,
    sockets: dict[str, str],
) -> None:
    state = tmp_path / "state"
    running = start(["--standalone", "--nproc-per-node=1", script], env=sockets)
    await_workers(running, scripts, 1)
    run = run_in(state)
    path = socket_of(run)
    running.signal(signal.SIGKILL)
    running.finish()
    code, _, err = touch(state, "stacks", run.path.name)
    assert code == 1
    assert "is LOST" in err
    assert f"dlrover-job stop {run.path.name}" in err
    assert path.exists()
    following = start(["--standalone", "--nproc-per-node=1", scripts.hello()], env=sockets)
    assert following.finish().returncode == 0
    assert not path.exists()  # the next launcher has removed it


MOVING = """
import dlrover_cli

for _ in range(3):  # an attempt that got somewhere is followed by the next one at once
    dlrover_cli.heartbeat()
leave("start", world_size=world_size)
time.sleep(600)
"""


@pytest.mark.full
def test_what_is_said_is_true_when_a_worker_of_another_node_fails_in_that_moment(
    start: Start, scripts: Scripts, touch: Touch, tmp_path: Path
) -> None:
    job = dlrover_job(start, tmp_path, "--nproc-per-node=1", "--max-restarts=100")
    moving = scripts.write("moving.py", MOVING)
    first, second = job.node(moving), job.node(moving)
    promised: list[int] = []
    await_workers(first.running, scripts, 2)
    for _ in range(6):
        [worker] = first.run.events("workers_started")[-1]["data"]["workers"]
        decisions = len(first.run.events("decision"))
        second.running.signal(signal.SIGSTOP)  # to learn of the request and the failure at once
        waking = threading.Thread(target=wake_after_decision, args=(first, second, decisions))
        waking.start()
        with suppress(ProcessLookupError):
            os.kill(worker["pid"], signal.SIGKILL)
        _, out, _ = touch(second.state, "restart")
        waking.join()
        if found := re.search(r"started again as attempt (\d+); no restart is charged", out):
            promised.append(int(found[1]))
        eventually(lambda n=decisions: have_started_again(first, second, n), 30)
    kept = [
        event["attempt"] + 1
        for event in second.run.events("decision")
        if event["data"]["trigger"] == "operator"
    ]
    assert promised == kept
    touch(first.state, "abort")
    job.assert_all_exit_with(82)


def wake_after_decision(decides: Node, sleeps: Node, before: int) -> None:
    with suppress(AssertionError):  # its worker was gone already
        eventually(lambda: len(decides.run.events("decision")) > before, 4)
    sleeps.running.signal(signal.SIGCONT)


def have_started_again(first: Node, second: Node, decisions: int) -> bool:
    decided = len(first.run.events("decision"))
    numbers = first.run.numbers()
    return decided > decisions and numbers == second.run.numbers() and len(numbers) == decided + 1


PONDERING = """
import pathlib, time
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

class Pondering(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        pathlib.Path("pondering").touch()
        time.sleep(50)
        return FailoverStrategy.NORMAL_FAILOVER
"""


@pytest.mark.full
def test_requests_are_answered_while_an_extension_ponders(
    start: Start, scripts: Scripts, touch: Touch, tmp_path: Path
) -> None:
    (tmp_path / "pondering.py").write_text(PONDERING)
    failing = scripts.write("failing.py", "sys.exit(3)\n")
    extension = "--dynamic_failover_extension=pondering::Pondering"
    running = start(["--standalone", "--max-restarts=5", extension, failing])
    running.wait_for(lambda _: (tmp_path / "pondering").exists(), 60)
    state = tmp_path / "state"
    code, out, _ = touch(state, "restart")
    assert code == 1
    assert "the job is deciding on right now: nothing is done" in out
    assert touch(state, "abort")[0] == 0
    ended = running.finish(timeout=30)
    assert ended.returncode == 82, ended
