"""Shell completion of `dlrover-job`, asked the way the shells ask: commands, options, run ids."""

import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import ENVIRON, run_python
from tests.cli.runs import Runs
from tests.cli.test_help import loaded

QUESTION = """
source completion.sh
COMP_WORDS=(dlrover-job list --output = y) COMP_CWORD=4
_dlrover_job_completion dlrover-job
echo "${COMPREPLY[*]}"
"""


def ask(*python: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_python(*python, JOB_PROGRAM, **environ)


def bash(*words: str, **environ: str) -> list[str]:
    """The answers for the last of `words`, split as Bash splits them."""
    found = ask(
        _DLROVER_JOB_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(("dlrover-job", *words)),
        COMP_CWORD=str(len(words)),
        **environ,
    )
    assert found.stderr == ""
    return found.stdout.split()


def test_commands_are_completed() -> None:
    assert bash("s") == ["submit", "show", "stacks", "stop"]
    assert bash("plugins", "") == ["list", "check"]


def test_options_and_choices_are_completed() -> None:
    assert bash("list", "--st") == ["--state"]
    assert bash("list", "--output", "") == ["json", "yaml"]
    assert bash("list", "--output", "=", "j") == ["json"]
    assert bash("list", "--state", "f") == ["finished", "failed"]
    assert bash("logs", "--a") == ["--attempt"]


@pytest.mark.parametrize("command", ["show", "logs"])
def test_run_ids_are_completed_the_latest_first(runs: Runs, command: str) -> None:
    older = runs.add("prepare", submitted=1_700_000_000.0)
    newer = runs.add("train", submitted=1_700_000_100.0)
    assert bash(command, "") == [newer.run_id, older.run_id]
    assert bash(command, newer.run_id[:-3]) == [newer.run_id]
    assert bash(command, newer.run_id, "") == []


def test_job_names_are_completed_once_one_is_begun(runs: Runs) -> None:
    for _ in range(2):
        runs.add("train")
    runs.add("prepare")
    assert bash("show", "tr") == ["train"]


def test_only_runs_that_can_be_stopped_or_cleaned_up_are_offered_for_it(runs: Runs) -> None:
    found = {state: runs.add(state.value.lower(), state).run_id for state in RunState}
    over = {run_id for state, run_id in found.items() if state.is_over}
    assert set(bash("cleanup", "")) == over
    assert set(bash("stop", "")) == set(found.values()) - over | {found[RunState.LOST]}
    first = found[RunState.RUNNING]
    assert first in bash("stop", found[RunState.PENDING], first[:8])


def test_pressing_tab_creates_nothing_where_there_are_no_runs(runs: Runs) -> None:
    assert bash("show", "") == []
    assert not runs.state.exists()


def test_a_broken_ledger_is_no_error_on_the_screen(runs: Runs) -> None:
    (runs.state / "runs").mkdir(parents=True)
    (runs.state / "ledger.db").write_bytes(b"this is no database" * 100)
    assert bash("show", "") == []


def test_zsh_and_fish_are_told_what_a_run_is(runs: Runs) -> None:
    files = runs.add("train", RunState.FAILED)
    found = ask(
        _DLROVER_JOB_COMPLETE="complete_zsh",
        _TYPER_COMPLETE_ARGS=f"dlrover-job show {files.run_id[:5]}",
    )
    assert f'"{files.run_id}":"train, FAILED"' in found.stdout
    found = ask(
        _DLROVER_JOB_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=f"dlrover-job show {files.run_id[:5]}",
    )
    assert found.stdout == f"{files.run_id}\ttrain, FAILED\n"


def test_the_job_file_is_left_to_the_shells_file_names() -> None:
    assert bash("submit", "tr") == []


def test_completion_loads_no_more_than_it_needs(runs: Runs) -> None:
    files = runs.add()
    found = ask(
        "-X",
        "importtime",
        _DLROVER_JOB_COMPLETE="complete_bash",
        COMP_WORDS=f"dlrover-job\nshow\n{files.run_id[:8]}",
        COMP_CWORD="2",
    )
    assert files.run_id in found.stdout
    heavy = {"torch", "rich", "yaml", "pydantic", "importlib_metadata"}
    assert loaded(found.stderr) & heavy == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_this_program(shell: str) -> None:
    found = ask(_DLROVER_JOB_COMPLETE=f"source_{shell}")
    assert found.returncode == 0
    assert f"_DLROVER_JOB_COMPLETE=complete_{shell}" in found.stdout


def test_a_real_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "dlrover-job"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{JOB_PROGRAM}" "$@"\n')
    program.chmod(0o755)
    script = ask(_DLROVER_JOB_COMPLETE="source_bash").stdout
    (tmp_path / "completion.sh").write_text(script)
    found = subprocess.run(
        ["bash", "--norc", "-c", QUESTION],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}"},
    )
    assert found.stdout == "yaml\n"
