"""`dlrover-job why`: the story of a run, as lines, as a document, and as a page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import LaunchError
from tests.cli.program import run_python
from tests.cli.runs import Runs, dead_process
from tests.diagnosis.journals import Journals, one_restart
from tests.harness.launcher import Finished
from tests.harness.scripts import Scripts

CRASH = """
if attempt == 0 and rank == 1:
    raise ValueError("a bad batch")
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["why", *arguments]) == 0
    return capsys.readouterr().out


def test_the_latest_run_is_told_unless_one_is_named(runs: Runs, capsys) -> None:
    older = runs.add("prepare", RunState.FAILED, submitted=1000.0, exit_code=3, reason="it broke")
    newer = runs.add("train", submitted=2000.0)
    assert newer.run_id in told(capsys)
    text = told(capsys, "prepare")
    assert older.run_id in text
    assert "Ended      FAILED, exit 3: it broke" in text


@pytest.mark.parametrize("state", RunState)
def test_a_run_in_any_state_is_told(runs: Runs, capsys, tmp_path: Path, state: RunState) -> None:
    runs.add(state=state, engine="cmd_line")
    page = tmp_path / "why.html"
    assert state.value in told(capsys)
    assert told(capsys, "--html", str(page)) == ""
    assert state.value in page.read_text()


def test_a_run_whose_process_is_gone_is_lost(runs: Runs, capsys) -> None:
    runs.add(state=RunState.RUNNING, owner=dead_process())
    assert "Ended      LOST" in told(capsys)


def test_a_directory_that_is_gone_costs_what_was_in_it(runs: Runs, capsys) -> None:
    files = runs.add(state=RunState.FAILED, exit_code=3)
    (files.nodes / "vm.1").mkdir()
    (files.nodes / "vm.1" / "events.jsonl").mkdir()
    files.result.write_text("{")
    text = told(capsys)
    assert "nodes/vm.1/events.jsonl cannot be read: Is a directory" in text
    assert "result.json cannot be read" in text


@pytest.mark.parametrize("command", ["list", "show", "top", "why"])
def test_json_is_short_for_a_document_in_json(runs: Runs, capsys, command: str) -> None:
    runs.add(state=RunState.FAILED, exit_code=3)
    documents = []
    for words in (["-o", "json"], ["--json"]):
        main([command, *words])
        documents.append(json.loads(capsys.readouterr().out))
    shown, short = documents
    assert shown.keys() == short.keys()
    assert short.get("run", short.get("runs")) == shown.get("run", shown.get("runs"))


def test_the_document_has_all_of_it(runs: Runs, capsys, document: Callable[..., Any]) -> None:
    files = runs.add()
    files.events.unlink()
    one_restart(Journals(files.path))
    found = document("why")
    assert found["run"]["run_id"] == files.run_id
    assert found["costs"]["goodput"] == pytest.approx(8 / 12)
    assert [each["end"] for each in found["attempts"]] == ["failed", "succeeded"]
    assert found["attempts"][0]["failures"][0]["rank"] == 1
    assert found["interruptions"][0]["seconds"] == pytest.approx(1)
    assert found["attempts"][0]["steps"] == 7
    assert found["attempts"][1]["steps_per_second"] is None
    assert found["attempts"][1]["pace"] == []
    assert yaml.safe_load(told(capsys, "-o", "yaml")) == found


def test_the_average_step_rate_of_an_attempt_is_told(
    runs: Runs, capsys, document: Callable[..., Any]
) -> None:
    journals = Journals(runs.add().path)
    one_restart(journals)
    for second in range(6, 11):
        journals.sample(second, 1, second * 3, second * 3)
    assert "every worker succeeded (30 steps done, 3.0 steps/s)" in told(capsys)
    attempt = document("why")["attempts"][1]
    assert attempt["steps_per_second"] == pytest.approx(3)
    assert [round(each["steps_per_second"]) for each in attempt["pace"]] == [3, 3, 3, 3]


def test_a_page_that_cannot_be_written_is_a_sentence(runs: Runs, tmp_path: Path) -> None:
    runs.add()
    with pytest.raises(LaunchError, match=r"cannot write .*: No such file or directory"):
        main(["why", "--html", str(tmp_path / "nowhere" / "why.html")])


def test_torch_is_not_imported(runs: Runs) -> None:
    one_restart(Journals(runs.add().path))
    code = (
        "import sys; from dlrover_cli.cli.job import main; main(['why', '--html', '/dev/null']); "
        "print(sorted({'torch', 'numpy', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    finished = run_python("-c", code)
    assert finished.stdout.strip() == "[]", finished


def test_a_real_crash_is_told_with_what_it_cost(
    launch: Callable[..., Finished], scripts: Scripts, document: Callable[..., Any], capsys
) -> None:
    crash = scripts.write("crash.py", CRASH)
    launched = launch(["--standalone", "--nproc-per-node=2", "--max-restarts=1", crash])
    assert launched.returncode == 0, launched
    found = document("why")
    first, second = found["attempts"]
    assert (first["end"], second["end"]) == ("failed", "succeeded")
    assert first["why"] == "rank 1 raised ValueError: a bad batch"
    assert "ValueError: a bad batch" in first["failures"][0]["traceback"]
    assert (first["decision"]["action"], first["decision"]["decided_by"]) == (
        "restart_workers",
        "default",
    )
    assert [span["rank"] for span in second["ranks"]] == [0, 1]
    [lost] = found["interruptions"]
    assert 0 < lost["seconds"] < found["costs"]["wall"]
    assert lost["at"] <= second["started"]
    costs = found["costs"]
    parts = sum(costs[name] for name in ("starting", "useful", "lost", "ending"))
    assert parts == pytest.approx(costs["wall"])
    assert not found["unreadable"]
    assert "1 failure" in told(capsys)
    assert json.dumps(found, allow_nan=False)
