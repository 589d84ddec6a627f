"""`dlrover-job submit`, `stop` and `cleanup` with real jobs."""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrover_cli.cli.job import main
from dlrover_cli.cli.job_submit import exit_code_of
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.ledger import Ledger, RunRow
from tests.cli.runs import Runs
from tests.cli.test_help import loaded
from tests.cli.test_job_list import past_run
from tests.harness.launcher import Finished, Running
from tests.harness.processes import process_info
from tests.harness.waiting import eventually

SLEEP = "import time; print('up', flush=True); time.sleep(100)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[..., Path]:
    """`job_file(first="print(1)", second=("print(2)", "first"))`: each a Python program."""

    def write(**jobs: str | tuple[str, str]) -> Path:
        entries = {}
        for name, given in jobs.items():
            program, *after = (given,) if isinstance(given, str) else given
            command = [sys.executable, "-c", program]
            entries[name] = {
                "platform": "local",
                "engine": "cmd_line",
                "after": after,
                "properties": {"command": command},
            }
        path = tmp_path / "jobs.yaml"
        path.write_text(yaml.safe_dump(entries, sort_keys=False))
        return path

    return write


def row(runs: Runs, run_id: str) -> RunRow:
    with Ledger.open(runs.state) as ledger:
        return ledger.row(run_id)


def run_ids(found: Finished) -> list[str]:
    return [line.split()[0] for line in found.stdout.splitlines()]


def test_submit_returns_at_once_with_a_line_for_each_job(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    found = job("submit", job_file(prepare=SLEEP, train=("print(1)", "prepare")))
    assert found.returncode == 0, found
    (first, prepare), (second, train) = (line.split() for line in found.stdout.splitlines())
    assert (prepare, train) == ("prepare", "train")
    assert "dlrover-job logs -f train" in found.stderr
    assert row(runs, second).state is RunState.PENDING
    stopped = job("stop", first)
    assert (stopped.returncode, stopped.stdout) == (0, f"{first} (prepare) is stopped\n")
    eventually(lambda: row(runs, second).state is RunState.SKIPPED, 30)
    assert row(runs, first).state is RunState.KILLED


@pytest.mark.parametrize(
    "jobs, code",
    [
        ({"a": "print(1)", "b": ("print(2)", "a")}, 0),
        ({"a": "raise SystemExit(7)"}, 7),
        ({"a": "raise SystemExit(7)", "b": ("print(2)", "a")}, 7),
        ({"a": "print(1)", "b": "raise SystemExit(5)", "c": "raise SystemExit(6)"}, 5),
        ({"a": "import os; os.kill(os.getpid(), 9)"}, 137),
    ],
)
def test_submit_and_wait_exits_with_the_jobs_own_code(
    job: Callable[..., Finished],
    job_file: Callable[..., Path],
    jobs: dict[str, str | tuple[str, str]],
    code: int,
) -> None:
    found = job("submit", "--wait", job_file(**jobs))
    assert found.returncode == code, found
    assert [line.split()[1] for line in found.stdout.splitlines()] == list(jobs)
    assert len(found.stderr.splitlines()) == len(jobs)


def test_submit_with_a_document_prints_exactly_one(
    job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    file = job_file(a="raise SystemExit(7)", b=("print(2)", "a"))
    waited = job("submit", "--wait", "-o", "json", file)
    assert waited.returncode == 7
    document = json.loads(waited.stdout)
    assert document["schema_version"] == 1
    assert [(run["name"], run["state"]) for run in document["runs"]] == [
        ("a", "FAILED"),
        ("b", "SKIPPED"),
    ]
    assert {run["submission"] for run in document["runs"]} == {document["submission"]}
    at_once = yaml.safe_load(job("submit", "-o", "yaml", job_file(a="print(1)")).stdout)
    assert set(at_once) == {"schema_version", "submission", "runs"}
    assert job("logs", "-f", at_once["runs"][0]["run_id"]).stdout == "1\n"


def test_ctrl_c_ends_the_waiting_and_not_the_job(
    runs: Runs,
    job: Callable[..., Finished],
    start_job: Callable[..., Running],
    job_file: Callable[..., Path],
) -> None:
    waiting = start_job("submit", "--wait", job_file(train=SLEEP))
    waiting.wait_for("train")
    [run_id] = run_ids_of(waiting)
    eventually(lambda: row(runs, run_id).state is RunState.RUNNING, 30)
    waiting.signal(signal.SIGINT)
    found = waiting.finish(30)
    assert found.returncode == 130
    assert f"dlrover-job stop {run_id}" in found.stderr
    assert row(runs, run_id).state is RunState.RUNNING
    assert job("stop", run_id).returncode == 0


def run_ids_of(running: Running) -> list[str]:
    return [line.split()[0] for line in running.stdout.splitlines()]


def test_a_job_file_that_cannot_be_used_leaves_nothing_behind(
    runs: Runs, job: Callable[..., Finished], tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("train:\n  platform: local\n  engine: cmd_lin\n")
    found = job("submit", path)
    assert found.returncode == 2
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 2, found
    assert "hint: " in found.stderr
    assert not (runs.state / "runs").exists()


def test_a_name_of_a_megabyte_is_not_repeated_in_full(
    runs: Runs, job: Callable[..., Finished], tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"? {'x' * 1_000_000}\n: {{engine: cmd_line}}\n")
    found = job("submit", path)
    assert found.returncode == 2
    assert "a job cannot be called 'xxx" in found.stderr
    assert "characters in all)" in found.stderr
    assert len(found.stderr) < 3000


def test_logs_of_a_running_job_can_be_followed_to_its_end(
    runs: Runs,
    job: Callable[..., Finished],
    start_job: Callable[..., Running],
    job_file: Callable[..., Path],
) -> None:
    [run_id] = run_ids(job("submit", job_file(train=SLEEP)))
    following = start_job("logs", "-f", "train")
    following.wait_for("up")
    assert job("stop", "train").returncode == 0
    found = following.finish(30)
    assert (found.returncode, found.stdout) == (0, "up\n")
    assert f"run {run_id} (train) is KILLED" in found.stderr


def test_what_is_left_of_a_run_whose_process_was_killed_can_be_stopped_and_cleaned_up(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    [run_id] = run_ids(job("submit", job_file(train=SLEEP)))
    eventually(lambda: job("logs", run_id).stdout == "up\n", 30)
    owner = row(runs, run_id).owner
    assert owner is not None
    assert owner.signal(signal.SIGKILL)
    eventually(lambda: not owner.is_alive(), 30)
    listed = job("list").stdout.splitlines()[1].split()
    assert (listed[0], listed[3]) == (run_id, "LOST")
    stopped = job("stop", run_id)
    assert (stopped.returncode, stopped.stdout) == (0, f"{run_id} (train) is stopped\n")
    assert job("cleanup", run_id).returncode == 0
    assert list((runs.state / "runs").iterdir()) == []


def test_no_command_loads_torch(runs: Runs, job: Callable[..., Finished], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(100)\n")
    file = tmp_path / "train.yaml"
    file.write_text("train: {engine: torch, properties: {script: train.py, standalone: true}}\n")
    commands = [("submit", file), ("logs",), ("show",), ("list",), ("stop", "train")]
    for command in [*commands, ("cleanup", "train")]:
        found = job(*command, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert found.returncode == 0, found
        assert "dlrover_cli" in loaded(found.stderr)
        assert loaded(found.stderr) & {"torch", "rich", "numpy"} == set(), command


def test_several_runs_are_stopped_together(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    ids = run_ids(job("submit", job_file(a=SLEEP, b=SLEEP, c="print(1)")))
    eventually(lambda: row(runs, ids[2]).state is RunState.FINISHED, 30)
    stopped = job("stop", *ids)
    assert stopped.returncode == 0, stopped
    assert stopped.stdout.splitlines() == [
        f"{ids[0]} (a) is stopped",
        f"{ids[1]} (b) is stopped",
        f"{ids[2]} (c) was over already: FINISHED",
    ]


def test_a_job_that_does_not_listen_is_killed_after_the_grace(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    [run_id] = run_ids(job("submit", job_file(train=STUBBORN)))
    eventually(lambda: job("logs", run_id).stdout == "up\n", 30)
    stopped = job("stop", run_id, "--grace", "0.2")
    assert stopped.stdout == f"{run_id} (train) is stopped\n"
    assert stopped.duration < 25  # without it, the job would have got 30 s


def test_stop_without_waiting_only_asks(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    [run_id] = run_ids(job("submit", job_file(train=SLEEP)))
    eventually(lambda: row(runs, run_id).state is RunState.RUNNING, 30)
    asked = job("stop", "--no-wait", run_id, "-o", "json")
    assert asked.returncode == 0
    assert [run["run_id"] for run in json.loads(asked.stdout)["runs"]] == [run_id]
    eventually(lambda: row(runs, run_id).state is RunState.KILLED, 30)


def test_a_run_that_is_not_over_cannot_be_cleaned_up(
    runs: Runs, job: Callable[..., Finished], job_file: Callable[..., Path]
) -> None:
    first, second = run_ids(job("submit", job_file(a="print(1)", b=SLEEP)))
    eventually(lambda: row(runs, first).state is RunState.FINISHED, 30)
    refused = job("cleanup", first, second)
    assert refused.returncode == 2
    assert f"hint: first: dlrover-job stop {second}" in refused.stderr
    assert (runs.state / "runs" / first).exists()
    job("stop", second)
    removed = job("cleanup", first, second)
    assert removed.returncode == 0, removed
    assert [line.rpartition(",")[0] for line in removed.stdout.splitlines()] == [
        f"removed {first} (a)",
        f"removed {second} (b)",
    ]
    assert list((runs.state / "runs").iterdir()) == []
    assert job("list").stdout == ""


def test_old_runs_are_removed_and_young_and_active_ones_stay(
    runs: Runs, document: Callable[..., dict[str, Any]], capsys
) -> None:
    active = runs.add("active", RunState.RUNNING, argv=["t.py"])
    young = runs.add("young", argv=["t.py"])
    for _ in range(2):
        runs.add("old", argv=["t.py"])
    would = document("cleanup", "--older-than", "1h", "--dry-run")
    assert would == {"schema_version": 1, "is_dry_run": True, "runs": [], "size": 0}
    assert main(["cleanup", "--older-than", "0s", "--dry-run"]) == 0
    planned = capsys.readouterr().out.splitlines()
    assert len(planned) == 4
    assert planned[-1].startswith("would remove 3 runs, ")
    assert young.path.exists()
    assert main(["cleanup", "--older-than", "0s"]) == 0
    done = capsys.readouterr().out.splitlines()
    assert done[-1].startswith("removed 3 runs, ")
    assert [path.name for path in (runs.state / "runs").iterdir()] == [active.run_id]


def suspended(running: Running) -> Running:
    running.signal(signal.SIGSTOP)
    eventually(lambda: process_info(running.pid).state == "T", what="it is suspended")
    return running


@pytest.mark.full
def test_of_several_cleanups_at_once_each_tells_of_what_it_has_removed(
    runs: Runs, start_job: Callable[..., Running]
) -> None:
    added = [runs.add("old", argv=["t.py"]).run_id for _ in range(20)]
    cleaning = [start_job("cleanup", "--older-than", "0s", "-o", "json") for _ in range(4)]
    found = [each.finish(60) for each in cleaning]
    assert [each.returncode for each in found] == [0] * 4, found
    removed = [run for each in found for run in json.loads(each.stdout)["runs"]]
    assert sorted(run["run_id"] for run in removed) == sorted(added)
    assert all(run["size"] > 0 for run in removed)
    assert "stays" not in "".join(each.stderr for each in found)
    assert list((runs.state / "runs").iterdir()) == []


def test_a_run_removed_while_it_is_waited_for_does_not_hide_the_others(
    runs: Runs,
    job: Callable[..., Finished],
    start_job: Callable[..., Running],
    job_file: Callable[..., Path],
) -> None:
    waiting = start_job("submit", "--wait", job_file(a=SLEEP, b="print(1)"))
    waiting.wait_for("b")
    first, second = run_ids_of(waiting)
    suspended(waiting)
    assert job("stop", first).returncode == 0
    assert job("cleanup", first).returncode == 0
    waiting.signal(signal.SIGCONT)
    found = waiting.finish(60)
    assert found.stderr.splitlines() == [
        f"run {first} (a) was removed, and how it ended is unknown",
        f"run {second} (b) is FINISHED, exit 0",
    ]
    assert found.returncode == 1


def test_a_run_removed_while_it_is_stopped_is_over(
    runs: Runs,
    job: Callable[..., Finished],
    start_job: Callable[..., Running],
    job_file: Callable[..., Path],
) -> None:
    [run_id] = run_ids(job("submit", job_file(train=STUBBORN)))
    eventually(lambda: job("logs", run_id).stdout == "up\n", 30)
    stopping = start_job("stop", run_id)
    eventually(lambda: row(runs, run_id).state is RunState.STOPPING, 30)
    suspended(stopping)
    owner = row(runs, run_id).owner
    assert owner is not None
    assert owner.signal(signal.SIGKILL)
    assert job("stop", run_id, "--grace", "0").returncode == 0
    assert job("cleanup", run_id).returncode == 0
    stopping.signal(signal.SIGCONT)
    found = stopping.finish(60)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"{run_id} (train) is over, and was removed\n"


@pytest.mark.parametrize(
    "arguments", [[], ["--older-than", "7d", "some-run"], ["--older-than", "soon"]]
)
def test_cleanup_has_to_know_what_to_remove(
    job: Callable[..., Finished], arguments: list[str]
) -> None:
    found = job("cleanup", *arguments)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    "ends, code",
    [
        ([(RunState.FINISHED, 0)], 0),
        ([(RunState.FINISHED, 0), (RunState.FAILED, 9)], 9),
        ([(RunState.SKIPPED, None), (RunState.FAILED, 9)], 9),
        ([(RunState.KILLED, 143), (RunState.FAILED, 9)], 143),
        ([(RunState.LOST, None)], 1),
        ([(RunState.SKIPPED, None), (RunState.FINISHED, 0)], 1),
        ([(RunState.FAILED, 0)], 1),
    ],
)
def test_the_first_failure_decides_about_the_exit_code(
    ends: list[tuple[RunState, int | None]], code: int
) -> None:
    any_run = past_run(Path("/state"), "20250101-000000-abcdef", 1.0)
    rows = [replace(any_run, state=state, exit_code=exit_code) for state, exit_code in ends]
    assert exit_code_of(rows) == code
