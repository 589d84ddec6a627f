"""Real launchers on the rendezvous `dlrover`: the store in the first of them, or served apart."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import Job, Node, free_port
from tests.integration.test_multinode import Stage

Start = Callable[..., Running]

_SERVE = """
import sys
from dlrover_cli.cli.job import console

sys.argv[0:1] = ["dlrover-job", "rendezvous", "serve"]
console()
"""
QUICK = "join_timeout=60,last_call_timeout=1,keep_alive_interval=0.5"


@contextmanager
def served_store(*options: str) -> Iterator["Served"]:
    """`dlrover-job rendezvous serve`, for as long as the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield Served(process, line)
    finally:
        process.kill()
        process.communicate()


class Served:
    def __init__(self, process: "subprocess.Popen[str]", line: str) -> None:
        self.process = process
        self.line = line

    @property
    def port(self) -> int:
        return int(self.line.rpartition(":")[2])


def our_job(
    start: Start,
    directory: Path,
    *options: object,
    nnodes: str,
    conf: str = QUICK,
    port: int | None = None,
) -> Job:
    """A job whose nodes meet by our rendezvous; without a port, the first node hosts the store."""
    return Job(
        start,
        directory,
        (
            f"--nnodes={nnodes}",
            "--rdzv-backend=dlrover",
            f"--rdzv-endpoint=localhost:{port or free_port()}",
            "--rdzv-id=job",
            f"--rdzv-conf={conf}" + (",is_host=0" if port else ""),
            "--local-addr=localhost",
            *options,
        ),
    )


@pytest.fixture
def staged(start: Start, scripts: Scripts, tmp_path: Path) -> Callable[..., Stage]:
    def make(*options: object, **job: Any) -> Stage:
        return Stage(our_job(start, tmp_path, *options, **job), scripts)

    return make


class TestMeeting:
    def test_two_nodes_crash_and_all_reduce_again(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        job = our_job(start, tmp_path, "--max-restarts=1", nnodes="2")
        script = scripts.gloo_all_reduce(crash_rank=1)
        for _ in range(2):
            job.node(script)
        job.assert_all_exit_with(0)
        assert [fact["sum"] for fact in scripts.facts("sum")] == [1.0, 1.0]

    def test_ranks_and_numbers_are_kept_through_a_restart(
        self, staged: Callable[..., Stage]
    ) -> None:
        stage = staged("--max-restarts=1", nnodes="3")
        for _ in range(3):
            stage.job.node(stage.script)
        assert stage.await_workers(3) == 0
        before = stage.by_rank(0)
        stage.tell("fail", 0, rank=1)
        assert stage.await_workers(3, since=1) == 1
        assert stage.by_rank(1) == before
        assert stage.numbers(1) == (1, 1, 0)
        stage.tell("finish", 1)
        for finished in stage.job.assert_all_exit_with(0):
            assert_calm(finished)

    def test_a_node_that_joins_later_is_let_in_at_no_cost(
        self, staged: Callable[..., Stage]
    ) -> None:
        stage = staged("--max-restarts=1", nnodes="1:2")
        stage.job.node(stage.script)
        assert stage.await_workers(1) == 0
        stage.job.node(stage.script)
        assert stage.await_workers(2) == 1
        assert stage.numbers(1) == (1, 0, 0)
        stage.tell("finish", 1)
        stage.job.assert_all_exit_with(0)


class TestServed:
    """The store outlives every node."""

    @pytest.mark.full
    def test_a_spare_takes_over_from_a_node_that_is_killed(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        with served_store("--port=0") as served:
            job = our_job(start, tmp_path, "--max-restarts=1", nnodes="2", port=served.port)
            stage = Stage(job, scripts)
            for _ in range(2):
                job.node(stage.script)
            stage.await_workers(2)
            spare = job.node(stage.script)
            eventually(lambda: events_of(spare, "rendezvous_started"), 30)
            victim, other = first_two(job)
            victim.running.kill()
            victim.running.finish()
            stage.tell("lose-peer", 0)
            again = stage.await_workers(2, since=1)
            assert {node_rank(other, again), node_rank(spare, again)} == {0, 1}
            assert node_rank(other, again) == node_rank(other, 0), "the survivor keeps its rank"
            stage.tell("finish", again)
            for node in (other, spare):
                finished = node.finish()
                assert finished.returncode == 0, finished

    def test_a_late_node_of_a_closed_job_is_told_so(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        with served_store("--port=0") as served:
            job = our_job(start, tmp_path, nnodes="2", port=served.port)
            script = scripts.hello()
            for _ in range(2):
                job.node(script)
            job.assert_all_exit_with(0)
            late = job.node(script).finish()
        assert late.returncode == 80, late
        assert "the job with this --rdzv-id has ended" in late.stderr

    @pytest.mark.parametrize(
        "signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
    )
    def test_it_prints_its_endpoint_and_ends_when_told(self, signum: signal.Signals) -> None:
        with served_store("--port=0", "--host=127.0.0.1") as served:
            assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]+\n", served.line)
            served.process.send_signal(signum)
            stdout, stderr = served.process.communicate(timeout=10)
        assert (served.process.returncode, stdout, stderr) == (0, "", "")

    @pytest.mark.full
    def test_a_port_that_is_taken_is_an_error_in_one_sentence(self) -> None:
        with served_store("--port=0") as first, served_store(f"--port={first.port}") as second:
            stdout, stderr = second.process.communicate(timeout=30)
        assert second.process.returncode == 1
        assert second.line + stdout == ""
        assert stderr.startswith(f"dlrover-job: error: cannot listen on port {first.port}: ")


class TestTroubles:
    def test_different_numbers_of_nodes_are_refused(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        job = our_job(start, tmp_path, nnodes="2")
        script = scripts.hello()
        first = job.node(script)
        eventually(lambda: events_of(first, "rendezvous_started"), 30)
        odd = job.node("--nnodes=3", script).finish()
        assert odd.returncode == 80, odd
        assert "this node was started with --nnodes=3, and the job 'job' with --nnodes=2" in (
            odd.stderr
        )
        job.node(script)
        assert first.finish().returncode == 0
        assert job.nodes[-1].finish().returncode == 0

    def test_too_few_nodes_give_up(self, start: Start, scripts: Scripts, tmp_path: Path) -> None:
        job = our_job(start, tmp_path, nnodes="2", conf="join_timeout=1")
        [finished] = [job.node(scripts.hello()).finish()]
        assert finished.returncode == 80, finished
        assert "within 1 s: 1 came, and 2 are needed" in finished.stderr
        assert finished.stderr.count("\n") <= 3, finished

    @pytest.mark.parametrize(
        "option, words",
        [
            ("--rdzv-conf=joint_timeout=3", "did you mean 'join_timeout'?"),
            ("--rdzv-conf=join_timeout=soon", "join_timeout takes a number above zero, not 'soon'"),
            ("--rdzv-conf=is_host=perhaps", "is_host takes 0 or 1"),
            ("--rdzv-endpoint=localhost:0", "several nodes cannot guess"),
        ],
    )
    def test_settings_that_cannot_be_used_are_refused(
        self, option: str, words: str, launch: Callable[..., Finished], scripts: Scripts
    ) -> None:
        backend = ["--rdzv-backend=dlrover", "--rdzv-endpoint=localhost:29477", "--nnodes=2"]
        finished = launch([*backend, option, scripts.hello()])
        assert finished.returncode == 2, finished
        assert words in finished.stderr

    def test_nobody_at_the_endpoint_is_an_error_in_one_sentence(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        job = our_job(start, tmp_path, nnodes="2", conf="is_host=0,read_timeout=0.5")
        finished = job.node(scripts.hello()).finish()
        assert finished.returncode == 80, finished
        assert "nobody answers at the rendezvous endpoint localhost:" in finished.stderr

    @pytest.mark.full
    def test_nodes_that_lose_the_store_with_its_node_say_so(
        self, staged: Callable[..., Stage]
    ) -> None:
        stage = staged("--max-restarts=1", nnodes="1:2")
        host = stage.job.node(stage.script)
        eventually(lambda: events_of(host, "rendezvous_started"), 30)
        other = stage.job.node(stage.script)
        met = stage.await_workers(2)
        host.running.kill()
        host.running.finish()
        stage.tell("lose-peer", met)
        finished = other.finish()
        assert finished.returncode == 80, finished
        assert "is gone" in finished.stderr
        assert finished.stderr.count("dlrover-run: error: ") == 1

    @pytest.mark.full
    def test_a_node_that_is_ended_is_done_without_at_once(
        self, staged: Callable[..., Stage]
    ) -> None:
        stage = staged("--max-restarts=1", nnodes="1:2")
        host = stage.job.node(stage.script)
        eventually(lambda: events_of(host, "rendezvous_started"), 30)
        other = stage.job.node(stage.script)
        met = stage.await_workers(2)
        other.running.signal(signal.SIGTERM)
        assert other.finish().returncode == 128 + signal.SIGTERM
        alone = stage.await_workers(1, since=met + 1)
        assert stage.numbers(alone)[1] == 0, "it cost no restart"
        stage.tell("finish", alone)
        assert host.finish().returncode == 0


def events_of(node: Node, kind: str) -> list[dict[str, Any]]:
    if not any(node.state.glob("dlrover/runs/*/nodes/*/events.jsonl")):
        return []
    return node.run.events(kind)


def first_two(job: Job) -> list[Node]:
    return sorted(job.nodes[:2], key=lambda node: node_rank(node, 0))


def node_rank(node: Node, attempt: int) -> int:
    started = [e for e in node.run.events("workers_started") if e["attempt"] == attempt]
    return int(started[0]["node_rank"])


def assert_calm(finished: Finished) -> None:
    """torch has nothing to complain about, not even when the store ends."""
    assert "Traceback" not in finished.stderr, finished
    assert "[c10d]" not in finished.stderr, finished
