"""What a run leaves behind: a result on every way out, a journal, failures to be read again."""

import json
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts import AgentFailureInfo
from tests.harness.launcher import Finished, Running
from tests.harness.processes import descendants_and_orphans
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import document, run_in

Launch = Callable[..., Finished]
Start = Callable[..., Running]

C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
ALWAYS = {
    *("schema_version", "run_id", "outcome", "exit_code", "reason", "hint", "argv"),
    *("started", "ended", "run_directory"),
}


def result_of(path: Path) -> dict[str, Any]:
    result = document(path)
    assert set(result) >= ALWAYS
    assert result["schema_version"] == 1
    assert result["started"] <= result["ended"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return result


class TestEveryWayOut:
    """`--result_file` is there however the run ends, and says the exit code and the reason."""

    @pytest.mark.parametrize(
        "argv,code,outcome,reason",
        [
            (["hello.py"], 0, "succeeded", "every worker succeeded"),
            (["crash.py"], 3, "failed", "rank 0 exited with code 3"),
            (["--nnodes=3:2", "hello.py"], 2, "refused", "--nnodes has its minimum, 3"),
            (["nowhere.py"], 2, "refused", "there is no script 'nowhere.py'"),
            (["--metrics_handler=no::X", "hello.py"], 2, "refused", "--metrics_handler=no::X"),
            (
                ["--nnodes=2", *C10D, "--rdzv-conf=join_timeout=1", "hello.py"],
                80,
                "rendezvous_failed",
                "the nodes did not come together in time",
            ),
            (["--compat=torchrun", "crash.py"], 1, "failed", ""),
            pytest.param(
                ["--compat=torchrun", "hello.py"], 0, "succeeded", "", marks=pytest.mark.full
            ),
            pytest.param(
                ["--no-python", "./not-a-program"],
                1,
                "failed",
                "cannot start",
                marks=pytest.mark.full,
            ),
        ],
    )
    def test_the_result_says_how_it_ended(
        self,
        launch: Launch,
        scripts: Scripts,
        tmp_path: Path,
        argv: list[str],
        code: int,
        outcome: str,
        reason: str,
    ) -> None:
        scripts.hello()
        scripts.crash()
        program = tmp_path / "not-a-program"
        program.write_text("#!/nowhere/at-all\n")
        program.chmod(0o755)
        argv = ["--result_file=result.json", *argv]
        finished = launch(argv)
        assert finished.returncode == code, finished
        result = result_of(tmp_path / "result.json")
        assert (result["outcome"], result["exit_code"]) == (outcome, code)
        assert reason in result["reason"]
        assert result["argv"] == argv
        if result["run_directory"] is not None:
            run = run_in(tmp_path / "state")
            assert str(run.path) == result["run_directory"]
            assert result_of(run.path / "result.json") == result

    @pytest.mark.parametrize(
        "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
    )
    def test_a_signal_while_workers_run(
        self, start: Start, scripts: Scripts, tmp_path: Path, number: signal.Signals
    ) -> None:
        running = start(["--result_file=result.json", scripts.wait()])
        running.wait_for("ready 0")
        running.signal(number)
        finished = running.finish()
        assert finished.returncode == 128 + number, finished
        result = result_of(tmp_path / "result.json")
        assert (result["outcome"], result["exit_code"]) == ("signalled", 128 + number)
        assert number.name in result["reason"]

    def test_a_signal_during_the_rendezvous(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        running = start(["--result_file=result.json", "--nnodes=2", *C10D, scripts.hello()])
        eventually(lambda: list(tmp_path.glob("state/dlrover/runs/*/nodes/*/events.jsonl")), 30)
        eventually(lambda: run_in(tmp_path / "state").events("rendezvous_started"), 30)
        running.signal(signal.SIGTERM)
        assert running.finish().returncode == 128 + signal.SIGTERM
        assert result_of(tmp_path / "result.json")["outcome"] == "signalled"

    def test_a_signal_while_the_launcher_still_imports(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        # Blocks the import of a plugin, which is as long as an import can take.
        (tmp_path / "slow.py").write_text(
            "import time\nopen('importing', 'w').close()\ntime.sleep(60)\n"
        )
        argv = ["--result_file=result.json", "--metrics_handler=slow::X", scripts.hello()]
        running = start(argv)
        eventually((tmp_path / "importing").exists, 30)
        running.signal(signal.SIGTERM)
        finished = running.finish()
        assert finished.returncode == 128 + signal.SIGTERM, finished
        assert "Traceback" not in finished.stderr
        result = result_of(tmp_path / "result.json")
        assert (result["outcome"], result["exit_code"]) == ("signalled", 143)
        assert run_in(tmp_path / "state").events("run_finished")

    def test_a_launcher_that_is_killed_leaves_no_half_result(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        (tmp_path / "result.json").write_text("of an earlier run")
        running = start(["--result_file=result.json", scripts.wait()])
        running.wait_for("ready 0")
        running.kill()
        running.finish()
        eventually(lambda: not descendants_and_orphans(running.token), 10)
        assert (tmp_path / "result.json").read_text() == "of an earlier run"
        assert list(tmp_path.glob(".result.json*")) == []


class TestRunDirectory:
    @pytest.fixture
    def state(self, launch: Launch, scripts: Scripts, tmp_path: Path) -> Path:
        """A run with two workers, a crash, a restart and another crash."""
        script = scripts.crash(rank=1, attempts=9, how=7, others="wait")
        finished = launch(["--nproc-per-node=2", "--max-restarts=1", script])
        assert finished.returncode == 7, finished
        return tmp_path / "state"

    def test_everything_is_private_and_the_journal_tells_the_story(self, state: Path) -> None:
        run = run_in(state)
        for path in (run.path, run.node, run.node / "failures", run.node / "logs"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        for path in (run.path / "job.json", run.path / "result.json", run.node / "events.jsonl"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path

        events = run.events()
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        for event in events:
            assert set(event) == {
                *("schema_version", "seq", "time", "run_id", "node_rank", "attempt"),
                *("kind", "data"),
            }
            assert event["schema_version"] == 1
            assert event["run_id"] == run.path.name
        assert [event["time"] for event in events] == sorted(event["time"] for event in events)
        told = [event["kind"] for event in events]
        attempt = [
            *("rendezvous_started", "rendezvous_completed", "workers_started"),
            *("worker_exited", "failure", "decision", "workers_stopping", "worker_exited"),
        ]
        story = ["run_started", *attempt, *attempt, "run_finished"]
        assert [kind for kind in told if kind in story] == story
        assert [e["attempt"] for e in events if e["kind"] == "workers_started"] == [0, 1]
        assert {e["node_rank"] for e in events if e["attempt"] is not None} == {0}
        assert run.job["argv"] == run.result["argv"]
        assert run.job["run_id"] == run.result["run_id"] == run.path.name

    def test_failures_can_be_read_again(self, state: Path) -> None:
        run = run_in(state)
        assert sorted(path.name for path in (run.node / "failures").iterdir()) == [
            "1.json",
            "2.json",
        ]
        for number, recorded in enumerate(run.failures):
            info = AgentFailureInfo.from_json(recorded)
            assert info.to_json() == recorded
            assert info.attempt == info.restart_count == number
            assert info.restarts_left == 1 - number
            assert info.root_cause is not None
            assert (info.root_cause.global_rank, info.root_cause.exit_code) == (1, 7)
            assert info.run_id == run.path.name
            assert info.log_content.startswith("rank 1 exited with code 7")
        assert run.result["failure"] == run.failures[-1]
        assert run.result["decision"] == "fail"

    def test_an_attempt_keeps_its_files(self, state: Path) -> None:
        logs = run_in(state).node / "logs"
        assert sorted(path.name for path in logs.iterdir()) == ["attempt_0", "attempt_1"]
        for attempt in ("attempt_0", "attempt_1"):
            for rank in ("0", "1"):
                assert (logs / attempt / rank / "stderr.log").exists()

    def test_runs_at_the_same_time_have_names_of_their_own(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.hello()
        for running in [start([script]) for _ in range(3)]:
            assert running.finish().returncode == 0
        runs = list(tmp_path.glob("state/dlrover/runs/*"))
        assert len(runs) == 3
        for path in runs:
            assert json.loads((path / "result.json").read_text())["outcome"] == "succeeded"
