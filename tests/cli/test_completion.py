"""Shell completion, asked the way the shells ask."""

import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_cli.cli.typer_adapter import rejoined
from tests.cli.program import ENVIRON, run_program

QUESTION = """
source completion.sh
COMP_WORDS=(dlrover-run --start-method = sp) COMP_CWORD=3
_dlrover_run_completion dlrover-run
echo "${COMPREPLY[*]}"
"""


def bash(*words: str) -> list[str]:
    """The answers for the last of `words`, split as Bash splits them."""
    found = run_program(
        _DLROVER_RUN_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(("dlrover-run", *words)),
        COMP_CWORD=str(len(words)),
    )
    assert found.stderr == ""
    return found.stdout.split()


def test_option_names_are_completed_with_dashes() -> None:
    assert bash("--rdzv-") == [
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--rdzv-conf",
        "--rdzv-handler",
    ]


def test_option_names_are_completed_with_underscores_for_those_who_type_them() -> None:
    assert bash("--nproc_") == ["--nproc_per_node"]


@pytest.mark.parametrize(
    "words", [("--start-method", "f"), ("--start_method", "=", "f"), ("--start-method", "=", "f")]
)
def test_choices_are_completed(words: tuple[str, ...]) -> None:
    assert bash(*words) == ["fork", "forkserver"]


def test_known_values_are_offered_where_others_are_possible() -> None:
    assert bash("--nproc-per-node", "") == ["auto", "cpu", "gpu", "xpu"]


def test_an_option_is_completed_after_values_that_bash_has_torn_apart() -> None:
    assert bash("--rdzv-endpoint", "=", "host", ":", "29400", "--stand") == ["--standalone"]


def test_an_option_is_completed_after_shortened_ones() -> None:
    assert bash("-mr3", "--nproc", "2", "--stand") == ["--standalone"]


def test_the_script_is_left_to_the_shells_file_names() -> None:
    assert bash("tr") == []


def test_an_option_is_offered_once_unless_it_may_be_repeated() -> None:
    offered = bash("--max-restarts", "3", "--metrics-handler", "m::A", "--m")
    assert "--max-restarts" not in offered
    assert {"--metrics-handler", "--monitor-interval"} <= set(offered)


def test_the_scripts_own_options_are_not_ours_to_complete() -> None:
    assert bash("train.py", "--n") == []


def test_zsh_gets_names_with_help_and_falls_back_to_files() -> None:
    found = run_program(
        _DLROVER_RUN_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="dlrover-run --stand"
    )
    assert found.stdout.startswith('_arguments \'*: :(("--standalone":"Run on this node alone')
    found = run_program(_DLROVER_RUN_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="dlrover-run tr")
    assert found.stdout == "_files\n"


def test_fish_gets_names_with_help_and_falls_back_to_files() -> None:
    asking = {"_DLROVER_RUN_COMPLETE": "complete_fish"}
    found = run_program(
        **asking, _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS="dlrover-run --dry"
    )
    assert found.stdout.startswith("--dry-run\tShow what would run")
    found = run_program(
        **asking, _TYPER_COMPLETE_FISH_ACTION="is-args", _TYPER_COMPLETE_ARGS="dlrover-run t"
    )
    assert found.returncode == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_this_program(shell: str) -> None:
    found = run_program(_DLROVER_RUN_COMPLETE=f"source_{shell}")
    assert found.returncode == 0
    assert f"_DLROVER_RUN_COMPLETE=complete_{shell}" in found.stdout


def test_a_real_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "dlrover-run"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlrover_cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "completion.sh").write_text(run_program(_DLROVER_RUN_COMPLETE="source_bash").stdout)
    found = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            QUESTION,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}"},
    )
    assert found.stdout == "spawn\n"


@pytest.mark.parametrize(
    "words, current, whole, at",
    [
        (["run", "--tee", "=", "0", ":", "1", "x"], 6, ["run", "--tee=0:1", "x"], 2),
        (["run", "--tee", "="], 2, ["run", "--tee="], 1),
        (["run", "--tee", "=", "0"], 3, ["run", "--tee=0"], 1),
        (["run", "--rdzv-handler", "=", "m", "::", "C"], 5, ["run", "--rdzv-handler=m::C"], 1),
        (["run"], 1, ["run"], 1),
        (["run", "a", ""], 2, ["run", "a", ""], 2),
    ],
)
def test_words_that_bash_tore_apart_are_put_together(
    words: list[str], current: int, whole: list[str], at: int
) -> None:
    assert rejoined(words, current) == (whole, at)
