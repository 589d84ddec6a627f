"""What README, CONTRIBUTING and .ci/run promise is there, and they say the same."""

import re
import subprocess

import pytest

from dlrover_cli.exit_codes import ExitCode
from tests.project.documents import ROOT, setup_commands, steps, text

FIRST_SCREEN = 24


def test_the_first_screen_holds_the_two_commands_that_set_everything_up():
    first_screen = text("README.md").splitlines()[:FIRST_SCREEN]
    assert len(setup_commands()) == 2
    assert all(command in first_screen for command in setup_commands())


def test_the_first_command_runs_the_training_example_with_two_workers():
    make, install, run = steps(setup_commands()[0])
    assert make == "python3 -m venv .venv"
    assert install == "pip install -c constraints.txt '.[examples]'"
    assert run == "dlrover-run --standalone --nproc-per-node=2 examples/train_ddp.py --epochs 2"


def test_every_documented_install_uses_the_constraints():
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        for line in re.findall(r"^.*\bpip install\b.*$", text(name), re.MULTILINE):
            assert "-c constraints.txt" in line, f"{name}: {line}"


def test_ci_runs_the_readme_test_command_after_the_readme_install():
    _make, install, run = steps(setup_commands()[1])
    arguments = install.removeprefix("pip install ")
    assert f"{arguments}\n" in text(".ci/run")
    assert extracted_test_command() == run


def test_ci_runs_every_check_and_the_full_tests():
    script = text(".ci/run")
    for command in ("ruff check .", "ruff format --check .", "mypy --strict dlrover_cli"):
        assert f"\n{command}\n" in script
    assert "\nlint-imports\n" in script
    assert '\neval "$test_command"\n' in script
    assert 'eval "$test_command -n 4 -m full"\n' in script
    assert "set -euo pipefail" in script


@pytest.mark.parametrize("name", [".ci/run", "examples/ci_job.sh"])
def test_shell_scripts_are_executable_and_parse(name):
    subprocess.run(["bash", "-n", ROOT / name], check=True)
    assert (ROOT / name).stat().st_mode & 0o111


def test_readme_lists_every_exit_code():
    table = text("README.md").partition("## Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    # 1 is a worker's own code, and stands in for those that would be mistaken for the launcher's.
    assert listed == {int(code) for code in ExitCode} - {ExitCode.FAILURE}


def test_the_changelog_has_an_unreleased_section():
    assert "\n## Unreleased\n" in text("CHANGELOG.md")


def extracted_test_command() -> str:
    """What .ci/run's own line finds in README."""
    [line] = re.findall(r"^test_command=.*$", text(".ci/run"), re.MULTILINE)
    shell = f'{line}\nprintf %s "$test_command"'
    finished = subprocess.run(
        ["bash", "-c", shell], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return finished.stdout
