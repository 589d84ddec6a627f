"""`dlrover-job list`: for people, for pipes, for programs, and quickly."""

import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.ledger_rows import RunRow
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import run_python
from tests.cli.runs import Runs, dead_process
from tests.cli.test_help import loaded
from tests.harness.launcher import Finished

LONG_REASON = "rank 3 on node-with-a-long-name died of SIGSEGV (11)"
KEYS = {
    "run_id",
    "name",
    "platform",
    "engine",
    "state",
    "exit_code",
    "reason",
    "submission",
    "after",
    "queue",
    "priority",
    "submitted",
    "started",
    "ended",
    "owner",
    "is_cleaned",
    "size",
    "directory",
}


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_without_runs_it_says_how_to_get_one(runs: Runs, capsys) -> None:
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "dlrover-job submit FILE" in err


def test_each_run_is_a_line_of_as_many_words_as_there_are_headings(runs: Runs, capsys) -> None:
    now = time.time()
    failed = runs.add(state=RunState.FAILED, exit_code=7, reason=LONG_REASON, submitted=now - 7200)
    waiting = runs.add("eval", RunState.PENDING, submitted=now - 30, engine="cmd_line")
    heading, first, second = lines(capsys)
    assert heading.split() == ["RUN", "JOB", "ENGINE", "STATE", "AGE", "TOOK", "RESULT"]
    assert first.split()[:4] == [waiting.run_id, "eval", "cmd_line", "PENDING"]
    assert re.fullmatch(r"3\ds", first.split()[4])
    assert first.split()[5:] == ["-", "-"]
    assert second.split()[:5] == [failed.run_id, "train", "torch", "FAILED", "2h"]
    assert second.endswith(f"exit 7: {LONG_REASON}")
    columns = [heading.index(word) for word in heading.split()]
    assert all(line[column - 1] == " " for line in (first, second) for column in columns[1:])


def test_a_reason_of_many_lines_is_one_line_and_cut_with_a_sign(runs: Runs, capsys) -> None:
    runs.add(state=RunState.FAILED, exit_code=1, reason="first\nsecond " + "x" * 500)
    [_, line] = lines(capsys)
    assert "exit 1: first second xxx" in line
    assert line.endswith("x…")
    assert len(line) < 220


def test_a_reason_cannot_command_the_terminal(runs: Runs, capsys) -> None:
    runs.add(state=RunState.FAILED, exit_code=1, reason="\033[2Jgone\r\nwell\tdone")
    assert lines(capsys)[1].endswith("exit 1: [2Jgone well done")


def test_a_run_that_waits_says_for_which_job(runs: Runs, capsys) -> None:
    first = runs.add("prepare", RunState.RUNNING, submitted=1000.0)
    runs.add("train", RunState.PENDING, submitted=2000.0, after=[first.run_id, "20250101-x"])
    assert lines(capsys)[1].endswith("  after prepare, 20250101-x")


def test_characters_that_the_terminal_does_not_know_are_no_traceback(
    runs: Runs, job: Callable[..., Finished]
) -> None:
    runs.add(state=RunState.FAILED, exit_code=1, reason="kaputt für immer \udcff")
    found = job("list", env={"PYTHONIOENCODING": "ascii"})
    assert found.returncode == 0, found
    assert "kaputt f\\xfcr immer" in found.stdout


def test_another_platform_stands_before_the_engine(runs: Runs, capsys) -> None:
    runs.add(platform="ray", engine="torch")
    assert lines(capsys)[1].split()[2] == "ray/torch"


def test_all_active_runs_are_shown_and_the_latest_twenty(runs: Runs, capsys) -> None:
    active = runs.add("old-but-active", RunState.RUNNING, submitted=1000.0)
    for number in range(25):
        runs.add(f"job{number}", submitted=2000.0 + number)
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    names = [line.split()[1] for line in out.splitlines()[1:]]
    assert names == [*(f"job{number}" for number in range(24, 4, -1)), "old-but-active"]
    assert active.run_id in out
    assert err == "and 5 older runs: dlrover-job list --all shows everything\n"


def test_all_shows_everything_and_n_the_latest(runs: Runs, capsys) -> None:
    for number in range(25):
        runs.add(f"job{number}", submitted=2000.0 + number)
    assert len(lines(capsys, "--all")) == 26
    assert [line.split()[1] for line in lines(capsys, "-n", "2")[1:]] == ["job24", "job23"]


def test_runs_can_be_chosen_by_their_states(runs: Runs, capsys) -> None:
    for state in RunState:
        runs.add(state.value.lower(), state)
    shown = lines(capsys, "--state", "failed", "--state", "KILLED")[1:]
    assert sorted(line.split()[1] for line in shown) == ["failed", "killed"]
    assert main(["list", "--state", "running", "-o", "json"]) == 0
    assert '"left_out": 0' in capsys.readouterr().out


def test_no_run_in_that_state_is_said(runs: Runs, capsys) -> None:
    runs.add()
    assert main(["list", "--state", "lost"]) == 0
    assert capsys.readouterr() == ("", "no run is LOST\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--state", "sleeping"], "--state=sleeping is no state of a run"),
        (["-n", "0"], "-n must be 1 or more and is 0"),
        (["-n", "2", "--all"], "-n and --all contradict each other"),
        (["-n", "many"], "Invalid value for '-n' / '--number': give a whole number"),
        (["surplus"], "Got unexpected extra argument"),
    ],
)
def test_a_bad_command_line_is_one_sentence_and_one_hint(
    runs: Runs, arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        main(["list", *arguments])
    assert caught.value.message.startswith(message)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_the_document_has_its_schema_and_every_field(
    runs: Runs, document: Callable[..., dict[str, Any]]
) -> None:
    files = runs.add(state=RunState.FAILED, exit_code=7, reason="it broke", after=["20250101-a"])
    found = document("list")
    assert set(found) == {"schema_version", "runs", "left_out"}
    assert found["schema_version"] == 1
    [run] = found["runs"]
    assert set(run) == KEYS
    assert run["run_id"] == files.run_id
    assert (run["state"], run["exit_code"], run["reason"]) == ("FAILED", 7, "it broke")
    assert run["after"] == ["20250101-a"]
    assert run["submitted"] == 1_700_000_000.0
    assert run["owner"]["pid"] == os.getpid()
    assert run["directory"] == str(files.path)


def test_yaml_says_the_same_as_json(
    runs: Runs, document: Callable[..., dict[str, Any]], capsys
) -> None:
    runs.add(state=RunState.FAILED, reason='a "quoted" reason: with ümlauts\nand lines')
    as_json = document("list")
    assert main(["list", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_an_empty_list_is_a_document_too(document: Callable[..., dict[str, Any]]) -> None:
    assert document("list") == {"schema_version": 1, "runs": [], "left_out": 0}


def test_a_run_whose_process_is_gone_is_lost(runs: Runs, capsys) -> None:
    runs.add(state=RunState.RUNNING, owner=dead_process())
    [_, line] = lines(capsys)
    assert line.split()[3] == "LOST"
    assert line.split()[5] == "-"  # it was found just now, and may have ended long ago
    assert "is gone" in line


@pytest.mark.parametrize(
    "limit, said",
    [
        ("1kB", "past runs take "),
        ("much", "DLROVER_STATE_LIMIT: 'much' is no size"),
        ("1TB", ""),
    ],
)
def test_runs_that_take_more_space_than_they_may_are_complained_about(
    runs: Runs, capsys, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    runs.add(owner=dead_process())
    monkeypatch.setenv("DLROVER_STATE_LIMIT", limit)
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.startswith(said)
    assert bool(err) == bool(said)


def test_a_terminal_gets_a_table_in_which_nothing_is_lost(
    runs: Runs, job: Callable[..., Finished]
) -> None:
    name = "a-job-with-a-name-that-is-longer-than-most"
    files = runs.add(name, RunState.FAILED, exit_code=137, reason=LONG_REASON)
    found = job("list", tty=True, env={"COLUMNS": "80", "TERM": "xterm-256color"})
    assert found.returncode == 0
    assert re.search(r"\x1b\[1;31mFAILED", found.stdout)
    text = re.sub(r"\x1b\[[0-9;]*m", "", found.stdout)
    shown = [line.rstrip("\r") for line in text.splitlines()]
    assert max(map(len, shown)) <= 80
    assert files.run_id in text  # in one piece, to be copied
    for words in (name, f"exit 137: {LONG_REASON}"):
        assert is_folded_into(words, shown)


def is_folded_into(text: str, shown: list[str]) -> bool:
    """Whether the text stands in a column, going on below."""
    start = text[:4]
    for number, line in enumerate(shown):
        column = line.find(start)
        if column < 0:
            continue
        folded = "".join(below[column:].split("  ")[0].strip() for below in shown[number:])
        if text.replace(" ", "") in folded.replace(" ", ""):
            return True
    return False


def test_a_narrow_terminal_loses_nothing_either(runs: Runs, job: Callable[..., Finished]) -> None:
    files = runs.add("train", RunState.FAILED, exit_code=7, reason="it broke")
    found = job("list", tty=True, env={"COLUMNS": "40", "TERM": "xterm", "NO_COLOR": "1"})
    shown = re.sub(r"\x1b\[[0-9;]*m", "", found.stdout).splitlines()
    assert max(len(line.rstrip("\r")) for line in shown) <= 40
    for words in (files.run_id, "train", "FAILED", "exit 7: it broke"):
        assert is_folded_into(words, shown), (words, found.stdout)


def test_a_piped_list_loads_neither_torch_nor_what_it_does_not_print(runs: Runs) -> None:
    runs.add()
    found = run_python(
        "-X", "importtime", JOB_PROGRAM, "list", XDG_STATE_HOME=str(runs.state.parent)
    )
    assert found.returncode == 0
    modules = loaded(found.stderr)
    assert "sqlite3" in modules
    assert modules & {"torch", "rich", "yaml", "pydantic", "numpy", "importlib_metadata"} == set()


def test_ten_thousand_past_runs_are_listed_in_under_half_a_second(
    runs: Runs, job: Callable[..., Finished]
) -> None:
    fill(runs.state, 10_000)
    job("list")  # heals what there is to heal
    took = []
    for _ in range(3):
        before = processor_seconds_of_children()
        found = job("list")
        took.append(processor_seconds_of_children() - before)
        assert len(found.stdout.splitlines()) == 21
        assert "and 9980 older runs" in found.stderr
    # It waits for nothing, and other tests on the same machine must not count.
    assert min(took) < 0.5


def processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(state: Path, number: int) -> None:
    """Past runs: a directory and a row each."""
    rows = []
    for index in range(number):
        run_id = f"20250101-{index:06}-abcdef"
        (state / "runs" / run_id).mkdir(parents=True)
        rows.append(past_run(state, run_id, 1_000_000.0 + index))
    with Ledger.open(state) as ledger:
        ledger.add_all(rows)
        ledger.settle((row.run_id, row.steps, 1000) for row in rows)


def past_run(state: Path, run_id: str, submitted: float) -> RunRow:
    return RunRow(
        run_id=run_id,
        name="train",
        platform="local",
        engine="torch",
        state=RunState.FINISHED,
        reason="every worker succeeded",
        exit_code=0,
        submission="5ub",
        after=(),
        queue=None,
        priority=0,
        owner=None,
        submitted=submitted,
        started=submitted,
        ended=submitted + 1,
        size=1000,
        is_cleaned=True,
        steps=5,
        directory=state / "runs" / run_id,
    )
