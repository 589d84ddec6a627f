"""Several nodes, on one machine: they meet, count alike, wait for each other and end together."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from tests.harness.launcher import Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import QUICK, Job, Node, c10d_job, static_job

Start = Callable[..., Running]

# A worker that says who it is and does what the test tells it: files named after rank and attempt.
TOLD = """
numbers = [attempt, int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
numbers.append(int(os.environ["DLROVER_GENERATION"]))
leave("start", numbers=numbers, world_size=world_size, group_rank=int(os.environ["GROUP_RANK"]))

def told(what):
    return any(
        os.path.exists(os.path.join(DIRECTORY, f"{what}.{whom}"))
        for whom in (f"{rank}.{attempt}", f"all.{attempt}")
    )

while True:
    if told("finish"):
        leave("end")
        break
    if told("fail"):
        sys.exit(5)
    if told("lose-peer"):
        os.write(2, b"RuntimeError: Connection closed by peer [127.0.0.1]:1\\n")
        os._exit(1)
    time.sleep(0.01)
"""


class Stage:
    """One job whose workers are told what to do."""

    def __init__(self, job: Job, scripts: Scripts) -> None:
        self.job = job
        self.scripts = scripts
        self.script = scripts.write("told.py", TOLD)

    def tell(self, what: str, attempt: int, rank: int | str = "all") -> None:
        (self.scripts.directory / f"{what}.{rank}.{attempt}").touch()

    def await_workers(self, count: int, since: int = 0) -> int:
        """Wait for an attempt, not before `since`, in which so many workers have met; its number.

        torch looks at its wait list once a second: a node that comes back a moment after the
        others may miss a round that can do without it, and is then let into the next one.
        """

        def found() -> list[int]:
            facts = [fact for fact in self.scripts.facts("start") if fact["attempt"] >= since]
            met = [fact["attempt"] for fact in facts if fact["world_size"] == count]
            return [attempt for attempt in met if met.count(attempt) == count]

        alive = next(node for node in self.job if node.running.poll() is None)
        alive.running.wait_for(lambda _: found(), 60)
        return found()[-1]

    def numbers(self, attempt: int) -> tuple[int, int, int]:
        """(attempt, restart count, generation), which all workers of an attempt have to share."""
        facts = [fact for fact in self.scripts.facts("start") if fact["attempt"] == attempt]
        [numbers] = {tuple(fact["numbers"]) for fact in facts}
        return numbers

    def by_rank(self, attempt: int = 0) -> list[Node]:
        """The nodes in the order of their ranks in an attempt."""

        def started(node: Node) -> list[dict[str, Any]]:
            events = node.run.events("workers_started")
            return [event for event in events if event["attempt"] == attempt]

        def rank(node: Node) -> int:
            # A worker may be further than the journal of its agent.
            eventually(lambda: started(node), 30, what="the workers in the journal")
            return int(started(node)[0]["node_rank"])

        return sorted(self.job, key=rank)


@pytest.fixture
def c10d(start: Start, scripts: Scripts, tmp_path: Path) -> Callable[..., Stage]:
    def make(*options: object, **job: Any) -> Stage:
        return Stage(c10d_job(start, tmp_path, *options, **job), scripts)

    return make


class TestMeeting:
    def test_nodes_may_differ_in_workers_and_roles(
        self, c10d: Callable[..., Stage], scripts: Scripts
    ) -> None:
        stage = c10d(nnodes="3")
        script = scripts.environment()
        for workers, role in ((1, "reader"), (3, "trainer"), (2, "trainer")):
            env = {"OMP_NUM_THREADS": "1"}
            stage.job.node(f"--nproc-per-node={workers}", f"--role={role}", script, env=env)
        for finished in stage.job.assert_all_exit_with(0):
            # On a busy machine the host's store may go first, which torch mentions.
            assert "Traceback" not in finished.stderr, finished
            assert "failed to shutdown the rendezvous" not in finished.stderr, finished
        seen = [fact["env"] for fact in scripts.facts("environment")]
        assert [int(env["RANK"]) for env in seen] == list(range(6))
        assert {env["WORLD_SIZE"] for env in seen} == {"6"}
        assert {env["GROUP_WORLD_SIZE"] for env in seen} == {"3"}
        assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in seen}) == 1
        for role, workers in (("reader", 1), ("trainer", 5)):
            ours = [env for env in seen if env["ROLE_NAME"] == role]
            assert [int(env["ROLE_RANK"]) for env in ours] == list(range(workers))
            assert {env["ROLE_WORLD_SIZE"] for env in ours} == {str(workers)}
        for group in {env["GROUP_RANK"] for env in seen}:
            ours = [env for env in seen if env["GROUP_RANK"] == group]
            assert [int(env["LOCAL_RANK"]) for env in ours] == list(range(len(ours)))
            assert {env["LOCAL_WORLD_SIZE"] for env in ours} == {str(len(ours))}

    def test_static_nodes_have_the_ranks_that_they_were_given(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        job = static_job(start, tmp_path, 2)
        script = scripts.environment()
        for rank in (1, 0):
            job.node(f"--node-rank={rank}", "--nproc-per-node=2", f"--max-restarts={rank}", script)
        finished = job.assert_all_exit_with(0)
        seen = [fact["env"] for fact in scripts.facts("environment")]
        assert [int(env["GROUP_RANK"]) for env in seen] == [0, 0, 1, 1]
        assert [node.run.events("workers_started")[0]["node_rank"] for node in job] == [1, 0]
        # What they do not have in common is said once, by the first of them.
        differ = (
            "the nodes do not have the same settings (--max-restarts: 0 on node 0, 1 on node 1)"
        )
        assert [each.stderr.count(differ) for each in finished] == [0, 1]
        (event,) = [event for node in job for event in node.run.events("settings_differ")]
        assert event["data"]["settings"] == {"--max-restarts": {"0": [0], "1": [1]}}

    @pytest.mark.full
    @pytest.mark.parametrize("conf", ["store_type=file", "is_host=0"])
    def test_other_places_to_meet(
        self, start: Start, scripts: Scripts, tmp_path: Path, conf: str
    ) -> None:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        job = c10d_job(start, tmp_path, nnodes="2", conf=f"{QUICK},{conf}", port=store.port)
        if "file" in conf:
            job.options = (*job.options, f"--rdzv-endpoint={tmp_path}/store")
        script = scripts.gloo_all_reduce(crash_rank=1)
        for _ in range(2):
            job.node("--max-restarts=1", script)
        job.assert_all_exit_with(0)
        assert [fact["sum"] for fact in scripts.facts("sum")] == [1.0, 1.0]


class TestMembership:
    """Nodes that come later are let in at no cost; those that go are done without, if allowed."""

    @pytest.mark.full
    def test_a_node_that_joins_later_has_the_same_numbers(
        self, c10d: Callable[..., Stage], tmp_path: Path
    ) -> None:
        stage = c10d("--max-restarts=1", f"--log-dir={tmp_path}/logs", "-r3", nnodes="1:2")
        first = stage.job.node(stage.script)
        assert stage.await_workers(1) == 0
        second = stage.job.node(stage.script)
        joined = stage.await_workers(2)
        assert joined > 0
        assert stage.numbers(joined) == (joined, 0, 0), "nothing was spent on it"
        # The whole budget is there: a failure of the newcomer is restart 1 of 1.
        stage.tell("fail", joined, rank=1)
        restarted = stage.await_workers(2, since=joined + 1)
        assert stage.numbers(restarted) == (restarted, 1, 0)
        stage.tell("finish", restarted)
        stage.job.assert_all_exit_with(0)
        ours, newcomers = first.run.numbers(), second.run.numbers()
        assert [attempt for attempt, _, _ in ours] == list(range(restarted + 1))
        assert newcomers[0] == (joined, 0, 0)
        assert newcomers[-1] == ours[-1] == (restarted, 1, 0)
        assert set(newcomers) <= set(ours)
        decisions = [event["data"]["action"] for event in first.run.events("decision")]
        assert decisions.count("admit") == restarted - 1
        assert decisions.count("restart_workers") == 1
        attempts = {path.name for path in tmp_path.glob("logs/*/attempt_*")}
        assert attempts == {f"attempt_{attempt}" for attempt in range(restarted + 1)}, "all kept"

    @pytest.mark.full
    def test_a_node_that_is_killed_is_done_without(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        # The store is outside, so that it does not matter which of the nodes it is.
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        conf = f"{QUICK},is_host=0"
        job = c10d_job(
            start, tmp_path, "--max-restarts=1", nnodes="1:3", conf=conf, port=store.port
        )
        stage = Stage(job, scripts)
        for _ in range(3):
            job.node(stage.script)
        met = stage.await_workers(3)
        victim, *rest = stage.by_rank(met)
        victim.running.kill()
        victim.running.finish()
        stage.tell("lose-peer", met)
        again = stage.await_workers(2, since=met + 1)
        stage.tell("finish", again)
        for node in rest:
            finished = node.finish()
            assert finished.returncode == 0, finished
            assert node.run.numbers()[-1] == stage.numbers(again) == (again, 1, 0)

    @pytest.mark.full
    def test_a_node_that_is_ended_is_done_without(self, c10d: Callable[..., Stage]) -> None:
        stage = c10d("--max-restarts=1", nnodes="1:2")
        nodes = [stage.job.node(stage.script) for _ in range(2)]
        met = stage.await_workers(2)
        host, other = sorted(nodes, key=lambda node: not hosts_store(node))
        other.running.signal(signal.SIGTERM)
        assert other.finish().returncode == 128 + signal.SIGTERM
        stage.tell("lose-peer", met)
        alone = stage.await_workers(1, since=met + 1)
        stage.tell("finish", alone)
        assert host.finish().returncode == 0

    @pytest.mark.full
    def test_nodes_that_lose_the_store_with_its_node_say_so(
        self, c10d: Callable[..., Stage]
    ) -> None:
        stage = c10d("--max-restarts=1", nnodes="1:2")
        nodes = [stage.job.node(stage.script) for _ in range(2)]
        met = stage.await_workers(2)
        host, other = sorted(nodes, key=lambda node: not hosts_store(node))
        host.running.kill()
        host.running.finish()
        stage.tell("lose-peer", met)
        finished = other.finish()
        assert finished.returncode == 80, finished
        assert "Traceback (most recent call last)" not in finished.stderr
        assert finished.stderr.count("dlrover-run: error: ") == 1


class TestEnding:
    """All nodes end together and in the same way."""

    def test_a_failure_on_one_node_ends_all_with_its_code(self, c10d: Callable[..., Stage]) -> None:
        stage = c10d(nnodes="3")
        for _ in range(3):
            stage.job.node("--nproc-per-node=2", stage.script)
        stage.await_workers(6)
        failed = time.monotonic()
        stage.tell("fail", 0, rank=3)
        stage.job.assert_all_exit_with(5)
        assert time.monotonic() - failed < 10
        for node in stage.job:
            result = node.run.result
            assert result["reason"].startswith("rank 3 exited with code 5")
            assert result["failure"]["node_rank"] == 1

    def test_a_node_that_is_done_waits_and_takes_part_in_a_restart(
        self, c10d: Callable[..., Stage]
    ) -> None:
        stage = c10d("--max-restarts=1", nnodes="2")
        for _ in range(2):
            stage.job.node(stage.script)
        stage.await_workers(2)
        done, late = stage.by_rank()
        stage.tell("finish", 0, rank=0)
        eventually(lambda: done.run.events("worker_exited"), 30)
        assert done.running.poll() is None, "waits for the other node"
        stage.tell("fail", 0, rank=1)
        stage.await_workers(2, since=1)
        stage.tell("finish", 1)
        stage.job.assert_all_exit_with(0)
        assert done.run.numbers() == late.run.numbers() == [(0, 0, 0), (1, 1, 0)]

    def test_the_wait_has_an_end(self, c10d: Callable[..., Stage]) -> None:
        stage = c10d("--exit-barrier-timeout=0.5", nnodes="2")
        for _ in range(2):
            stage.job.node(stage.script)
        stage.await_workers(2)
        done, late = stage.by_rank()
        stage.tell("finish", 0, rank=0)
        finished = done.finish()
        assert finished.returncode == 0, finished
        assert "did not finish within 0.5 s" in finished.stderr
        assert done.run.events("exit_barrier_timeout")
        stage.tell("finish", 0, rank=1)
        finished = late.finish()
        assert finished.returncode == 0, finished

    def test_a_node_that_cannot_start_its_workers_ends_the_others_too(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        job = c10d_job(start, tmp_path, nnodes="2")
        script = scripts.wait()
        for name, text in (("good", f"#!/bin/sh\nexec python3 {script}\n"), ("bad", "#!/no/sh\n")):
            program = tmp_path / name / "program"
            program.parent.mkdir()
            program.write_text(text)
            program.chmod(0o755)
            job.node("--no-python", "./program", cwd=program.parent)
        good, bad = job.finish(30)
        assert bad.returncode == 1, bad
        assert "cannot start './program'" in bad.stderr
        assert good.returncode == 1, good


def hosts_store(node: Node) -> bool:
    """Whether the store of the rendezvous lives in this node's launcher."""
    from dlrover_cli.rendezvous.faults import holder_of_port

    [endpoint] = [arg for arg in node.running.argv if arg.startswith("--rdzv-endpoint=")]
    holder = holder_of_port(int(endpoint.rpartition(":")[2]))
    return holder is not None and f"(pid {node.running.pid})" in holder
