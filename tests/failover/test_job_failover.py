"""`dlrover-job failover test`: recorded failures are asked about again, without a job."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.errors import PluginError, UsageError
from dlrover_cli.testing import exception_failure, exit_failure, signal_failure
from tests.harness.processes import descendants_and_orphans

PROGRAM = "from dlrover_cli.cli.job import console; console()"
EXTENSION = """
import os, time
from dlrover_cli.contracts import *

class ByCode(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, info):
        match info.root_cause.exit_code:
            case 3: return FailoverStrategy.ABORTION_FAILOVER
            case 4: return FailoverStrategy.NODE_FAILOVER
            case 5: os._exit(5)
            case 6: time.sleep(1000)
            case 7: print("a word from the extension"); return FailoverStrategy.GLOBAL_FAILOVER
"""
RULES = """
[[rules]]
name = "segfault"
when = { signal = "SIGSEGV" }
strategy = "node"
backoff = "5s"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works: an extension, rules, and some failures by the code of their exit."""
    (tmp_path / "bycode.py").write_text(EXTENSION)
    (tmp_path / "rules.toml").write_text(RULES)
    for code in range(1, 8):
        write(tmp_path / f"{code}.json", exit_failure(code))
    write(tmp_path / "segv.json", signal_failure("SIGSEGV"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, failure: AgentFailureInfo) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(failure.to_json()))


def replay(*arguments: str) -> int:
    return main(["failover", "test", *arguments])


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs with `--json` and gives back the document; `code` is the expected exit code."""

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert replay("--json", *arguments) == code
        parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return parsed

    return run


def test_each_failure_has_a_line_with_who_decided_what(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay("--extension=bycode::ByCode", "3.json", "4.json", "1.json") == 0
    out, err = capsys.readouterr()
    first, second, third = out.splitlines()
    assert first.startswith("3.json: ABORTION_FAILOVER by extension bycode::ByCode in ")
    assert first.endswith("ms: the extension's answer")
    assert second.startswith("4.json: NODE_FAILOVER by extension bycode::ByCode in ")
    assert third.startswith("1.json: NORMAL_FAILOVER by default in ")
    assert err == ""


def test_rules_are_asked_where_the_extension_has_no_opinion(
    folder: Path, document: Callable[..., dict[str, Any]]
) -> None:
    told = document("--extension=bycode::ByCode", "--rules=rules.toml", "segv.json", "3.json")
    by_rule, by_extension = told["failures"]
    assert by_rule["strategy"] == "NODE_FAILOVER"
    assert by_rule["decided_by"] == "rule 'segfault'"
    assert by_rule["backoff"] == 5.0
    assert by_extension["decided_by"] == "extension bycode::ByCode"


def test_rules_can_be_tried_without_an_extension(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay("--rules=rules.toml", "segv.json") == 0
    line = capsys.readouterr().out
    assert line.startswith("segv.json: NODE_FAILOVER by rule 'segfault' in ")
    assert line.endswith(" (wait 5 s)\n")


def test_rules_of_the_current_directory_count_as_in_a_run(
    folder: Path, document: Callable[..., dict[str, Any]]
) -> None:
    (folder / "dlrover.toml").write_text(
        '[[failover.rules]]\nname = "one"\nwhen = { exit_code = 1 }\nstrategy = "global"\n'
    )
    told = document("--rules=rules.toml", "1.json", "segv.json")
    assert [each["decided_by"] for each in told["failures"]] == ["rule 'one'", "rule 'segfault'"]


def test_the_document_has_everything(folder: Path, document: Callable[..., dict[str, Any]]) -> None:
    told = document("--extension=bycode::ByCode", "--expect=ABORTION_FAILOVER", "3.json")
    assert told.pop("load_seconds") > 0
    [failure] = told.pop("failures")
    assert told == {
        "schema_version": 1,
        "extension": "bycode::ByCode",
        "rules": None,
        "as_expected": True,
    }
    assert 0 < failure.pop("seconds") < 30
    assert failure == {
        "file": "3.json",
        "kind": "exit",
        "strategy": "ABORTION_FAILOVER",
        "decided_by": "extension bycode::ByCode",
        "reason": "the extension's answer",
        "backoff": None,
        "problems": [],
        "expected": "ABORTION_FAILOVER",
    }


@pytest.mark.parametrize("name", ["NODE_FAILOVER", "NODE", "node"])
def test_an_expectation_that_holds(folder: Path, name: str) -> None:
    assert replay("--extension=bycode::ByCode", "4.json", f"--expect={name}") == 0


@pytest.mark.parametrize("name", ["ABORTION_FAILOVER", "abortion", "abort"])
def test_an_abort_may_be_expected_by_the_name_that_rules_use(folder: Path, name: str) -> None:
    assert replay("--extension=bycode::ByCode", "3.json", f"--expect={name}") == 0


def test_a_usage_error_points_to_the_help_of_its_own_command() -> None:
    finished = run_program("failover", "test")
    assert "hint: See dlrover-job failover test --help" in finished.stderr


def test_an_expectation_that_does_not_hold_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay("--extension=bycode::ByCode", "4.json", "3.json", "--expect=node") == 1
    assert capsys.readouterr().err == (
        "3.json: expected NODE_FAILOVER, decided ABORTION_FAILOVER\n"
    )


def test_an_expectation_for_each(folder: Path, document: Callable[..., dict[str, Any]]) -> None:
    files = ["3.json", "4.json"]
    expectations = ["--expect=abortion", "--expect=node"]
    assert document("--extension=bycode::ByCode", *files, *expectations)["as_expected"]
    told = document("--extension=bycode::ByCode", *files, *reversed(expectations), code=1)
    assert not told["as_expected"]
    assert [each["expected"] for each in told["failures"]] == ["NODE_FAILOVER", "ABORTION_FAILOVER"]


def test_an_extension_that_crashes_is_told_and_its_output_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], process_token: str
) -> None:
    assert replay("--extension=bycode::ByCode", "7.json", "5.json", "4.json") == 1
    out, err = capsys.readouterr()
    assert "5.json: NORMAL_FAILOVER by extension bycode::ByCode (failed) in " in out
    assert "5.json: extension bycode::ByCode ended its process with exit code 5" in err
    assert "4.json: NODE_FAILOVER" in out
    assert "output of the extension:\n  a word from the extension\n" in err
    assert descendants_and_orphans(process_token) == []


def test_an_extension_that_hangs_is_as_bad_as_the_options_say(folder: Path) -> None:
    options = ["--failover-timeout=3", "--failover_on_error=abort", "--expect=abortion"]
    assert replay("--extension=bycode::ByCode", "6.json", *options) == 0


def test_a_run_directory_is_all_its_failures_in_order(
    folder: Path, document: Callable[..., dict[str, Any]]
) -> None:
    run = folder / "run"
    for attempt, number in enumerate([1, 2, 10]):
        write(run / f"nodes/a.1/failures/{number}.json", exit_failure(3, attempt=attempt))
    write(run / "nodes/b.2/failures/1.json", exit_failure(4, attempt=1))
    for name in ("job.json", "result.json"):
        (run / name).write_text("{}")
    told = document("--extension=bycode::ByCode", "run")
    wanted = ["a.1/failures/1", "a.1/failures/2", "b.2/failures/1", "a.1/failures/10"]
    assert [each["file"] for each in told["failures"]] == [f"run/nodes/{n}.json" for n in wanted]
    assert len(document("run/nodes/a.1", "3.json")["failures"]) == 4
    assert len(document("run/nodes/a.1/failures")["failures"]) == 3


def test_later_failures_know_the_earlier_ones(
    folder: Path, document: Callable[..., dict[str, Any]]
) -> None:
    (folder / "twice.toml").write_text(
        '[[rules]]\nname = "again"\nwhen = { same_failure = 2 }\nstrategy = "abort"\n'
    )
    write(folder / "oom.json", exception_failure("torch.OutOfMemoryError", "too big"))
    told = document("--rules=twice.toml", "oom.json", "oom.json")
    assert [each["strategy"] for each in told["failures"]] == [
        "NORMAL_FAILOVER",
        "ABORTION_FAILOVER",
    ]


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "bad.json cannot be read: No such file or directory"),
        ("{", "bad.json is not a JSON document: "),
        ("\xff", "bad.json is not a JSON document: "),
        ("[]", "bad.json: failure must be a JSON object and is an array"),
        ('{"kid": "exit"}', "bad.json: failure has an unknown key 'kid'"),
        ('{"kind": "boredom"}', "bad.json: failure has kind='boredom', which is none of: "),
        ('{"schema_version": 99}', "bad.json: failure has schema_version 99"),
        ('{"workers": [{}]}', "bad.json: failure: workers[0] lacks 'global_rank'"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_asked(
    folder: Path, content: str | None, words: str
) -> None:
    if content is not None:
        (folder / "bad.json").write_text(content, encoding="latin-1")
    with pytest.raises(UsageError) as caught:
        replay("--extension=no::Such", "3.json", "bad.json")
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_a_directory_without_failures_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match="empty holds no failures; looked for nodes/"):
        replay("empty")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["3.json", "--expect=often"], "--expect=often is no strategy"),
        (["3.json", "4.json", "5.json", "--expect=node", "--expect=node"], "there are 3 failures"),
        (["3.json", "--failover-timeout=0"], "must be more than 0"),
        (["3.json", "--rules=none.toml"], "none.toml"),
        (["3.json", "--failover-on-error=shrug"], "shrug"),
        ([], "Missing argument"),
        (["3.json", "--nonsense"], "No such option: --nonsense"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        replay(*arguments)
    assert words in caught.value.message


def test_an_extension_that_cannot_be_loaded_is_refused(folder: Path) -> None:
    with pytest.raises(PluginError, match=r"^--extension=bycode::ByCod: there is no 'ByCod' in "):
        replay("--extension=bycode::ByCod", "3.json")


def run_program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def test_the_program_says_what_is_wrong_and_what_to_do(folder: Path) -> None:
    finished = run_program("failover", "test", "none.json")
    assert finished.returncode == 2
    assert finished.stdout == ""
    error, hint = finished.stderr.splitlines()
    assert error == "dlrover-job: error: none.json cannot be read: No such file or directory"
    assert hint.startswith("hint: ")


def test_the_program_exits_as_expected(folder: Path) -> None:
    finished = run_program("failover", "test", "1.json", "--expect=node")
    assert finished.returncode == 1
    assert finished.stdout.startswith("1.json: NORMAL_FAILOVER by default in ")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["failover"], ["failover", "test", "-h"]])
def test_help_is_there_on_every_level(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: ")
    assert err == ""


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("dlrover-job ")


def test_torch_is_not_imported(folder: Path) -> None:
    program = (
        "import sys; from dlrover_cli.cli.job import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    arguments = ["failover", "test", "--extension=bycode::ByCode", "--rules=rules.toml", "3.json"]
    finished = subprocess.run([sys.executable, "-c", program, *arguments], timeout=60)
    assert finished.returncode == 0


def test_a_terminal_gets_the_file_in_a_line_of_its_own_however_long(folder: Path) -> None:
    deep = folder / ("a-run-with-a-long-name-" * 5) / "nodes" / "vm.1" / "failures" / "1.json"
    write(deep, exit_failure(3))
    arguments = ["failover", "test", "--extension=bycode::ByCode", str(deep), "4.json"]
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "wb", buffering=0) as terminal:
            program = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments],
                stdout=terminal,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
            )
        shown = re.sub("\033\\[[0-9;]*m", "", read_all(ours)).splitlines()
        assert program.wait(30) == 0
    finally:
        os.close(ours)
    assert shown[0] == str(deep)
    assert shown[1].startswith("  ABORTION_FAILOVER by extension bycode::ByCode in ")
    assert shown[2] == "4.json"
    assert shown[3].startswith("  NODE_FAILOVER by extension bycode::ByCode in ")


def read_all(terminal: int) -> str:
    data = b""
    while True:
        try:
            data += os.read(terminal, 65536)
        except OSError:  # how a terminal says that nobody holds its other end
            return data.decode()
