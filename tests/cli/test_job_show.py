"""`dlrover-job show`: all about one run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.run_files import RunFiles
from tests.cli.runs import Runs, dead_process, write_log
from tests.harness.launcher import Finished


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["show", *arguments])
    return capsys.readouterr().out


def facts(text: str) -> dict[str, str]:
    lines = text.partition("\n\n")[0].splitlines()
    return {line[:10].strip(): line[11:] for line in lines}


def section(text: str, heading: str) -> list[str]:
    found = text.partition(f"\n{heading}\n")[2].partition("\n\n")[0]
    return [line.strip() for line in found.splitlines()]


def write_node_events(files: RunFiles, node: str, *events: tuple[int, str, dict[str, Any]]) -> None:
    path = files.nodes / node / "events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt, kind, data in events:
        event = {"time": 1_700_000_000.0, "attempt": attempt, "kind": kind, "data": data}
        with path.open("a") as file:
            file.write(json.dumps(event) + "\n")


def test_the_latest_run_is_shown_unless_one_is_named(runs: Runs, capsys) -> None:
    older = runs.add("prepare", submitted=1000.0)
    newer = runs.add("train", submitted=2000.0)
    assert facts(shown(capsys))["Run"] == newer.run_id
    assert facts(shown(capsys, "prepare"))["Run"] == older.run_id
    assert facts(shown(capsys, older.run_id))["Job"] == "prepare"


def test_facts_history_and_job_are_told(runs: Runs, capsys) -> None:
    files = runs.add(state=RunState.FAILED, exit_code=7, reason="rank 1 broke", after=["2025-a"])
    text = shown(capsys)
    found = facts(text)
    assert found["State"] == "FAILED"
    assert found["Result"] == "exit 7: rank 1 broke"
    assert found["Runs on"] == "local, engine torch"
    assert found["After"] == "2025-a"
    assert found["Directory"] == str(files.path)
    assert found["Owner"].endswith("(alive)")
    history = [line.split("  ", 1)[1] for line in section(text, "History")]
    assert history[0] == "submitted"
    assert history[1].startswith("owned by process ")
    assert history[2:] == ["STARTING", "RUNNING", "FAILED  exit 7: rank 1 broke"]
    job = section(text, "Job")
    assert job[0].startswith("submitted in /project on ")
    assert yaml.safe_load("\n".join(job[1:])) is not None
    assert "script: train.py" in job
    assert "__class__" not in text


def test_a_run_in_the_foreground_has_its_command_line(runs: Runs, capsys) -> None:
    runs.add(argv=["--nproc-per-node=2", "my train.py"])
    assert section(shown(capsys), "Job")[0] == "dlrover-run --nproc-per-node=2 'my train.py'"


def test_attempts_of_all_nodes_are_put_together(runs: Runs, capsys) -> None:
    files = runs.add()
    started = {"workers": [{"global_rank": 0}, {"global_rank": 1}]}
    failure = {"number": 1, "failure_kind": "exit", "root_rank": 1, "ranks": [1]}
    decision = {"action": "restart_workers", "reason": "restart 1 of 3", "strategy": "NORMAL"}
    for node in ("a.1", "b.1"):
        write_node_events(
            files,
            node,
            (0, "workers_started", started),
            (0, "rendezvous_started", {}),
            (1, "workers_started", started),
        )
    write_node_events(files, "b.1", (0, "failure", failure), (0, "decision", decision))
    (files.nodes / "a.1" / "events.jsonl").open("a").write('{"kind": "workers_started", "da')
    first, second = section(shown(capsys), "Attempts")
    assert first.startswith("0  20")
    assert first.endswith("4 workers  rank 1 failed (exit)  restart workers: restart 1 of 3")
    assert second.endswith("4 workers")


def test_files_are_listed_with_their_sizes(runs: Runs, capsys) -> None:
    files = runs.add()
    write_log(files, 0, 3, "stderr", "x" * 1500)
    write_log(files, 0, 3, "stdout", "")
    listed = section(shown(capsys), "Files")
    assert "1.5 kB  nodes/node.1/logs/attempt_0/3/stderr.log" in listed
    assert not any("stdout.log" in line for line in listed)


def test_a_run_whose_files_cannot_be_read_is_shown_as_far_as_it_is_known(
    runs: Runs, capsys
) -> None:
    files = runs.add(state=RunState.FAILED, exit_code=7)
    files.job.write_text("{")
    files.events.write_text("no event\n")
    found = facts(shown(capsys, files.run_id))
    assert (found["Run"], found["State"]) == (files.run_id, "FAILED")


def test_the_document_has_everything(runs: Runs, document: Callable[..., dict[str, Any]]) -> None:
    files = runs.add(state=RunState.RUNNING)
    write_log(files, 0, 0, "stderr", "line\n")
    found = document("show", files.run_id)
    assert set(found) == {
        "schema_version",
        "run",
        "job",
        "result",
        "history",
        "attempts",
        "files",
    }
    assert found["run"]["state"] == "RUNNING"
    assert found["run"]["is_owner_alive"] is True
    assert found["job"]["job"]["job_config"]["properties"]["script"] == "train.py"
    assert found["result"] is None
    assert [event["kind"] for event in found["history"]] == [
        "submitted",
        "owned",
        "state",
        "state",
    ]
    assert found["history"][-1]["data"]["to"] == "RUNNING"
    assert {"path": "nodes/node.1/logs/attempt_0/0/stderr.log", "size": 5} in found["files"]


def test_the_owner_of_a_lost_run_has_ended(runs: Runs, capsys) -> None:
    runs.add(state=RunState.RUNNING, owner=dead_process())
    found = facts(shown(capsys))
    assert found["State"] == "LOST"
    assert found["Owner"].endswith("(ended)")


@pytest.mark.parametrize("command", ["show", "logs", "stop", "cleanup"])
def test_an_unknown_run_is_a_usage_error_with_what_is_near(runs: Runs, command: str) -> None:
    runs.add("training")
    with pytest.raises(UsageError) as caught:
        main([command, "trianing"])
    assert "'trianing'" in caught.value.message
    assert "training" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("command", ["show", "logs"])
def test_without_runs_there_is_nothing_to_show(runs: Runs, command: str) -> None:
    with pytest.raises(UsageError, match="there is no run yet") as caught:
        main([command])
    assert "dlrover-job submit" in (caught.value.hint or "")


def test_a_beginning_that_several_runs_share_names_them(runs: Runs) -> None:
    first, second = runs.add(submitted=1000.0), runs.add(submitted=1000.0)
    with pytest.raises(UsageError) as caught:
        main(["show", first.run_id[:8]])
    assert first.run_id in caught.value.message
    assert second.run_id in caught.value.message


def test_a_terminal_gets_the_state_in_colour(runs: Runs, job: Callable[..., Finished]) -> None:
    runs.add(state=RunState.FAILED)
    colourful = job("show", tty=True, env={"TERM": "xterm", "NO_COLOR": None})
    assert "\033[1;31mFAILED\033[0m" in colourful.stdout
    assert "\033" not in job("show", tty=True, env={"TERM": "xterm", "NO_COLOR": "1"}).stdout
    assert "\033" not in job("show").stdout


def test_an_error_on_the_command_line_is_one_sentence_and_one_hint(
    runs: Runs, job: Callable[..., Finished], tmp_path: Path
) -> None:
    found = job("show", "nothing")
    assert found.returncode == 2
    assert found.stdout == ""
    first, second = found.stderr.splitlines()
    assert first == "dlrover-job: error: there is no run or job 'nothing'"
    assert second == "hint: see `dlrover-job list`"
