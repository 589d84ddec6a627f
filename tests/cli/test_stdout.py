"""Both programs print to a stdout that is full, closed or not read, and end without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

HELP = [["dlrover-run", "--help"], ["dlrover-run", "--version"], ["dlrover-job", "--help"]]


def run_in_shell(argv: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    command = f'"$@" {redirection}'
    program = Path(sys.executable).parent / argv[0]
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, "bash", str(program), *argv[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("argv", HELP, ids=" ".join)
def test_a_full_disk_is_a_sentence(argv: list[str]) -> None:
    finished = run_in_shell(argv, ">/dev/full")
    assert finished.returncode == 1
    assert f"{argv[0]}: error: cannot write to stdout: No space left" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("argv", HELP, ids=" ".join)
@pytest.mark.parametrize("redirection", [">&-", "| true"])
def test_a_stdout_that_nobody_reads_is_no_failure(argv: list[str], redirection: str) -> None:
    finished = run_in_shell(argv, redirection)
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(">&-", marks=pytest.mark.full),
        pytest.param("| true", marks=pytest.mark.full),
        "| head -1",
    ],
)
def test_a_plan_that_nobody_reads_to_its_end_is_no_failure(
    tmp_path: Path, redirection: str
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    finished = run_in_shell(["dlrover-run", "--dry-run", str(script)], redirection)
    assert (finished.returncode, finished.stderr) == (0, "")
