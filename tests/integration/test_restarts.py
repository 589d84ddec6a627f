"""Crash and restart: gloo workers recover every time, and everybody counts the same."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts import AgentFailureInfo
from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.integration.jobs import Job, c10d_job, free_port, run_in

Launch = Callable[..., Finished]
Start = Callable[..., Running]

# The ranks sum themselves up; one of them fails in the middle of it in the first attempt.
SUM = """
import torch
import torch.distributed as dist

leave(
    "start",
    numbers=[
        attempt,
        int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        int(os.environ["DLROVER_GENERATION"]),
    ],
    port=os.environ["MASTER_PORT"],
)
dist.init_process_group("gloo")
for step in range(3):
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    if attempt == 0 and step == STEP and rank == CRASH_RANK:
        if HOW == "raise":
            raise RuntimeError("on purpose")
        if HOW < 0:
            os.kill(os.getpid(), -HOW)
        os._exit(HOW)
leave("end", sum=total.item())
dist.destroy_process_group()
"""
HOW = (3, -signal.SIGKILL, "raise", -signal.SIGSEGV)


def summing(scripts: Scripts, rank: int = 1, how: int | str = 3, step: int = 1) -> Path:
    return scripts.write("sum.py", SUM, CRASH_RANK=rank, HOW=how, STEP=step)


class TestRecovery:
    """A crash of one gloo worker is followed by an attempt in which all of them sum up."""

    def test_on_one_node(self, launch: Launch, scripts: Scripts, tmp_path: Path) -> None:
        script = summing(scripts, how="raise")
        finished = launch(["--standalone", "--nproc-per-node=2", "--max-restarts=1", script])
        assert finished.returncode == 0, finished
        assert_recovered(scripts, workers=2)
        assert run_in(tmp_path / "state").numbers() == [(0, 0, 0), (1, 1, 0)]

    def test_on_two_nodes(self, start: Start, scripts: Scripts, tmp_path: Path) -> None:
        job = c10d_job(start, tmp_path, "--max-restarts=1", nnodes="2")
        script = summing(scripts)
        for _ in range(2):
            job.node(script)
        assert_recovered_together(job, scripts, workers=2)

    @pytest.mark.full
    def test_with_a_port_of_the_users_choice(self, launch: Launch, scripts: Scripts) -> None:
        port = free_port()
        argv = [f"--master-port={port}", "--nproc-per-node=2", "--max-restarts=1"]
        finished = launch([*argv, summing(scripts)])
        assert finished.returncode == 0, finished
        first, later = (
            {fact["port"] for fact in scripts.facts("start") if fact["attempt"] == attempt}
            for attempt in (0, 1)
        )
        assert first == {str(port)}
        assert len(later) == 1
        assert later != first, "an attempt's store holds nothing of the attempt before it"
        assert_recovered(scripts, workers=2)

    # Each shape and each way to crash once in the full run, 20 runs in all with the soak.
    @pytest.mark.parametrize(
        "nodes,workers,run",
        [
            pytest.param(
                nodes, workers, run, marks=pytest.mark.full if run == kept else pytest.mark.soak
            )
            for nodes, workers, runs, kept in (
                (1, 2, 5, 4),
                (1, 4, 4, 3),
                (1, 8, 3, 2),
                (2, 2, 4, 3),
                (2, 4, 2, 1),
                (2, 8, 2, 0),
            )
            for run in range(runs)
        ],
    )
    def test_every_time(
        self,
        start: Start,
        scripts: Scripts,
        tmp_path: Path,
        nodes: int,
        workers: int,
        run: int,
    ) -> None:
        script = summing(scripts, rank=run % workers, how=HOW[run % len(HOW)], step=run % 3)
        options = ["--max-restarts=1", f"--nproc-per-node={workers // nodes}", script]
        job = c10d_job(start, tmp_path, nnodes="2") if nodes == 2 else Job(start, tmp_path, ())
        for _ in range(nodes):
            job.node(*options)
        assert_recovered_together(job, scripts, workers)


class TestCounting:
    """attempt, restart count and generation are the same on every node, in events and workers."""

    def test_failures_on_different_nodes_count_for_everybody(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.write(
            "fail_in_turn.py",
            """
            numbers = [os.environ[name] for name in NUMBERS]
            leave("start", numbers=[int(number) for number in numbers])
            if attempt < 2 and rank == attempt:
                sys.exit(3)
            while attempt < 2:
                time.sleep(0.01)
            """,
            NUMBERS=["DLROVER_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "DLROVER_GENERATION"],
        )
        job = c10d_job(start, tmp_path, "--max-restarts=3", nnodes="2")
        for _ in range(2):
            job.node(script)
        job.assert_all_exit_with(0)
        expected = [(0, 0, 0), (1, 1, 0), (2, 2, 0)]
        assert [node.run.numbers() for node in job] == [expected, expected]
        seen = [tuple(fact["numbers"]) for fact in scripts.facts("start")]
        assert seen == [numbers for numbers in expected for _rank in range(2)]
        for node in job:
            assert node.run.result["attempts"] == 3
            assert node.run.result["restart_count"] == 2

    def test_restarts_end_with_the_budget(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        finished = launch(["--max-restarts=2", scripts.crash(attempts=9, how=7)])
        assert finished.returncode == 7, finished
        run = run_in(tmp_path / "state")
        assert run.numbers() == [(0, 0, 0), (1, 1, 0), (2, 2, 0)]
        assert [failure["restarts_left"] for failure in run.failures] == [2, 1, 0]
        assert run.result["reason"].startswith("rank 0 exited with code 7")


class TestExitCodes:
    """The root cause's own code, whoever else went down with it."""

    @pytest.mark.parametrize("how,code", [(9, 9), ("SIGSEGV", 128 + signal.SIGSEGV)])
    def test_the_rank_that_failed_by_itself_is_the_root_cause(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, how: int | str, code: int
    ) -> None:
        # The others end first and say what a rank says whose peer went away.
        script = scripts.write(
            "collateral.py",
            """
            if rank == 1:
                while len(os.listdir(DIRECTORY + "/down")) < 2:
                    time.sleep(0.005)
                if isinstance(HOW, int):
                    os._exit(HOW)
                os.kill(os.getpid(), getattr(signal, HOW))
            os.write(2, b"RuntimeError: Connection closed by peer [127.0.0.1]:1\\n")
            open(f"{DIRECTORY}/down/{rank}", "w").close()
            os._exit(1)
            """,
            HOW=how,
        )
        (tmp_path / "down").mkdir()
        finished = launch(["--nproc-per-node=3", script])
        assert finished.returncode == code, finished
        failure = AgentFailureInfo.from_json(run_in(tmp_path / "state").result["failure"])
        assert failure.root_cause is not None
        assert failure.root_cause.global_rank == 1
        assert "rank 1" in finished.stderr

    @pytest.mark.parametrize("how", [2, 80, pytest.param(85, marks=pytest.mark.full)])
    def test_codes_with_a_meaning_of_their_own_become_1_and_the_result_has_the_true_one(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, how: int
    ) -> None:
        finished = launch([scripts.crash(how=how)])
        assert finished.returncode == 1, finished
        result = run_in(tmp_path / "state").result
        assert result["exit_code"] == 1
        assert f"exited with code {how}" in result["reason"]
        assert result["failure"]["workers"][0]["exit_code"] == how

    def test_gloo_peers_do_not_hide_the_root_cause(self, launch: Launch, scripts: Scripts) -> None:
        finished = launch(["--nproc-per-node=2", summing(scripts, rank=1, how=5)])
        assert finished.returncode == 5, finished


def assert_recovered(scripts: Scripts, workers: int) -> None:
    """Every rank started twice and got to the end of the second attempt with the right sum."""
    assert [(fact["rank"], fact["numbers"]) for fact in scripts.facts("start")] == [
        (rank, [attempt, attempt, 0]) for attempt in (0, 1) for rank in range(workers)
    ]
    ends: list[dict[str, Any]] = [fact for fact in scripts.facts("end") if fact["attempt"] == 1]
    assert [fact["sum"] for fact in ends] == [sum(range(workers))] * workers


def assert_recovered_together(job: Job, scripts: Scripts, workers: int) -> None:
    job.assert_all_exit_with(0)
    assert_recovered(scripts, workers)
    for node in job:
        assert node.run.numbers() == [(0, 0, 0), (1, 1, 0)]
