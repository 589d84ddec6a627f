"""Real checks with real processes; a bad node is one whose torch was tampered with by a preload."""

import json
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.integration.jobs import QUICK, Job, Node, c10d_job, run_in, static_job

Start = Callable[..., Running]
Launch = Callable[..., Finished]
Tamper = Callable[[str], dict[str, Any]]

TAMPERS = {
    "slow_math": """
        import time, torch
        matmul = torch.matmul
        def slow(*args, **kwargs):
            time.sleep(0.05)
            return matmul(*args, **kwargs)
        torch.matmul = slow
    """,
    "broken_link": """
        import torch.distributed as dist
        def all_reduce(*args, **kwargs):
            raise RuntimeError("the link is down")
        dist.all_reduce = all_reduce
    """,
    "cut_off": """
        import torch.distributed as dist
        all_reduce = dist.all_reduce
        def alone(*args, **kwargs):
            if dist.get_world_size() > 1:
                raise RuntimeError("the network is down")
            return all_reduce(*args, **kwargs)
        dist.all_reduce = alone
    """,
    "hangs": """
        import time
        import torch.distributed as dist
        def all_reduce(*args, **kwargs):
            time.sleep(600)
        dist.all_reduce = all_reduce
    """,
}


@pytest.fixture
def tamper(tmp_path: Path) -> Tamper:
    """Options of a launcher whose probes and workers find torch tampered with."""
    directory = tmp_path / "tampered"
    directory.mkdir()
    for name, text in TAMPERS.items():
        (directory / f"{name}.py").write_text(textwrap.dedent(text))
    return lambda name: {"env": {"PYTHONPATH": str(directory)}}


def make_job(backend: str, start: Start, directory: Path, nnodes: str, *options: object) -> Job:
    job = c10d_job(start, directory, *options, nnodes=nnodes, conf=QUICK)
    replaced = {"--rdzv-backend=c10d": f"--rdzv-backend={backend}"}
    job.options = tuple(replaced.get(str(option), option) for option in job.options)
    return job


def events(state: Path, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in run_in(state).events(kind)]


def test_a_sound_node_is_told_of_and_trains(
    launch: Launch, scripts: Scripts, tmp_path: Path
) -> None:
    finished = launch(["--precheck=1", "--nproc-per-node=2", scripts.hello()])
    assert finished.returncode == 0, finished
    assert "checked 1 node in " in finished.stderr
    assert " is sound: matmul " in finished.stderr
    [result] = events(tmp_path / "state", "preflight_result")
    assert [node["standing"] for node in result["nodes"]] == ["sound"]
    [stage] = events(tmp_path / "state", "preflight_stage")
    assert stage["matmul"] > 0 < stage["all_reduce"]


def test_without_the_option_nothing_is_checked(
    launch: Launch, scripts: Scripts, tmp_path: Path
) -> None:
    finished = launch([scripts.hello()])
    assert finished.returncode == 0, finished
    assert "checked" not in finished.stderr
    assert events(tmp_path / "state", "preflight_started") == []


@pytest.mark.full
def test_the_bandwidth_is_told(launch: Launch, scripts: Scripts) -> None:
    finished = launch(["--comm-perf-test", "--nproc-per-node=2", scripts.hello()])
    assert finished.returncode == 0, finished
    assert "all-reduce of 16 MiB among 2 workers" in finished.stderr
    assert "bus bandwidth" in finished.stderr


@pytest.mark.full
@pytest.mark.parametrize("how", ["--worker_start=fresh", "--run-path"])
def test_workers_of_every_kind_are_preceded_by_the_check(
    launch: Launch, scripts: Scripts, how: str
) -> None:
    finished = launch(["--precheck=1", how, scripts.hello()])
    assert finished.returncode == 0, finished
    assert "checked 1 node in " in finished.stderr


@pytest.mark.full
def test_a_faulty_node_exits_with_81_and_says_why(
    launch: Launch, scripts: Scripts, tamper: Tamper, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    finished = launch(
        ["--precheck=1", f"--result_file={result}", "--preload=broken_link", scripts.hello()],
        **tamper("broken_link"),
    )
    assert finished.returncode == 81, finished
    assert "is faulty: RuntimeError: the link is down" in finished.stderr
    document = json.loads(result.read_text())
    assert document["exit_code"] == 81
    assert "the link is down" in document["reason"]
    assert scripts.facts("hello") == []


@pytest.mark.full
def test_a_probe_that_hangs_is_killed_at_the_deadline(
    launch: Launch, scripts: Scripts, tamper: Tamper
) -> None:
    finished = launch(
        ["--precheck=1", "--precheck-timeout=4", "--preload=hangs", scripts.hello()],
        **tamper("hangs"),
    )
    assert finished.returncode == 81, finished
    assert "is faulty: not done after 4 s" in finished.stderr


@pytest.mark.full
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_check_ends_the_launcher_and_the_probes(
    start: Start, scripts: Scripts, tamper: Tamper, signum: signal.Signals
) -> None:
    running = start(["--precheck=1", "--preload=hangs", scripts.hello()], **tamper("hangs"))
    running.wait_for(lambda each: _probes(each) != [])
    running.signal(signum)
    finished = running.finish()
    assert finished.returncode == 128 + signum, finished
    assert running.processes() == []


def _probes(running: Running) -> list[int]:
    return [pid for pid in running.processes() if b"preflight.probe" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _has_started_workers(state: Path) -> bool:
    journals = state.glob("dlrover/runs/*/nodes/*/events.jsonl")
    return any("workers_started" in journal.read_text() for journal in journals)


TRAIN = """
import time
while not os.path.exists(os.path.join(DIRECTORY, "enough")):
    time.sleep(0.02)
"""


class Nodes:
    """A job of sound nodes and a bad one, which may come late; they train until it is enough."""

    def __init__(self, job: Job, scripts: Scripts) -> None:
        self.job = job
        self.script = scripts.write("train.py", TRAIN)
        self._enough = scripts.directory / "enough"

    def start(self, bad: str, tampered: dict[str, Any], sound: int = 2) -> Node:
        """The bad one, which neither hosts the store nor is the first."""
        first = self.job.node(self.script)
        first.running.wait_for(lambda _: any(first.state.glob("dlrover/runs/*/nodes/*")))
        for _ in range(sound - 1):
            self.job.node(self.script)
        return self.job.node(f"--preload={bad}", self.script, **tampered)

    def end(self) -> list[Finished]:
        self._enough.touch()
        return self.job.finish(90)


class TestSeveralNodes:
    @pytest.mark.full
    @pytest.mark.parametrize("backend", ["dlrover", "c10d"])
    def test_a_slow_node_is_named_and_left_out(
        self, backend: str, start: Start, scripts: Scripts, tmp_path: Path, tamper: Tamper
    ) -> None:
        options = ("--precheck=1", "--exclude_straggler")
        nodes = Nodes(make_job(backend, start, tmp_path, "2:3", *options), scripts)
        bad = nodes.start("slow_math", tamper("slow_math")).finish(90)
        assert bad.returncode == 81, bad
        assert "is slow: a matmul takes " in bad.stderr
        first, second = nodes.end()[:2]
        assert (first.returncode, second.returncode) == (0, 0), (first, second)
        assert all(" is slow, " in each.stderr for each in (first, second))
        assert "it leaves the job" in first.stderr
        assert nodes.job.nodes[2].run.numbers() == []

    @pytest.mark.full
    def test_a_slow_node_stays_without_the_option(
        self, start: Start, scripts: Scripts, tmp_path: Path, tamper: Tamper
    ) -> None:
        nodes = Nodes(make_job("dlrover", start, tmp_path, "2:3", "--precheck=1"), scripts)
        bad = nodes.start("slow_math", tamper("slow_math"))
        bad.running.wait_for(lambda _: _has_started_workers(bad.state), 60)
        ended = nodes.end()
        assert [each.returncode for each in ended] == [0, 0, 0], ended
        assert all(" is slow, " in each.stderr for each in ended)

    @pytest.mark.full
    @pytest.mark.parametrize("backend", ["dlrover", "c10d"])
    def test_a_node_that_cannot_reach_others_leaves_and_they_train(
        self, backend: str, start: Start, scripts: Scripts, tmp_path: Path, tamper: Tamper
    ) -> None:
        options = ("--precheck=1", "--precheck-timeout=20")
        nodes = Nodes(make_job(backend, start, tmp_path, "2:3", *options), scripts)
        bad = nodes.start("cut_off", tamper("cut_off")).finish(90)
        assert bad.returncode == 81, bad
        first, second = nodes.end()[:2]
        assert (first.returncode, second.returncode) == (0, 0), (first, second)
        assert "the network is down" in first.stderr

    @pytest.mark.full
    def test_of_two_nodes_nobody_can_tell_which_it_is(
        self, start: Start, scripts: Scripts, tmp_path: Path, tamper: Tamper
    ) -> None:
        options = ("--precheck=1", "--precheck-timeout=15")
        nodes = Nodes(make_job("dlrover", start, tmp_path, "2", *options), scripts)
        nodes.start("cut_off", tamper("cut_off"), sound=1)
        ended = nodes.job.finish(90)
        assert [each.returncode for each in ended] == [81, 81], ended
        assert "cannot be told" in ended[0].stderr


@pytest.mark.full
def test_a_static_job_ends_with_a_sentence_where_a_node_is_faulty(
    start: Start, scripts: Scripts, tmp_path: Path, tamper: Tamper
) -> None:
    job = static_job(start, tmp_path, 2)
    job.node("--node-rank=0", "--precheck=1", scripts.hello())
    bad = ("--node-rank=1", "--precheck=1", "--preload=broken_link", scripts.hello())
    job.node(*bad, **tamper("broken_link"))
    first, second = job.finish(60)
    assert (first.returncode, second.returncode) == (80, 81), (first, second)
    assert "this rendezvous cannot go on without node 1" in first.stderr


@pytest.mark.full
def test_one_node_that_wants_a_check_is_enough(
    start: Start, scripts: Scripts, tmp_path: Path
) -> None:
    job = make_job("dlrover", start, tmp_path, "2")
    job.node(scripts.hello())
    job.node("--precheck=1", scripts.hello())
    job.assert_all_exit_with(0)
    assert all(events(node.state, "preflight_result") for node in job)


@pytest.mark.full
@pytest.mark.parametrize(
    "option, checks", [("--precheck=1", 1), ("--network-check", 2)], ids=["precheck", "network"]
)
def test_only_the_check_of_dlrover_is_repeated_before_restarts(
    launch: Launch, scripts: Scripts, tmp_path: Path, option: str, checks: int
) -> None:
    finished = launch([option, "--max-restarts=1", scripts.crash()])
    assert finished.returncode == 0, finished
    assert len(events(tmp_path / "state", "preflight_result")) == checks
