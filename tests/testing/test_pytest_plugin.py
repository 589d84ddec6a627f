"""The pytest plugin: DLRover's import paths work in a user's tests, and can be turned off."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.waiting import eventually

TEST = """
from dlrover.python.common.enums import FailoverStrategy
from dlrover.python.elastic_agent.torch.dynamic_failover import DynamicAgentFailoverExtension
from dlrover_cli.testing import exit_failure


class Extension(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy.ABORTION_FAILOVER


def test_it():
    import sys
    assert Extension().get_user_failover_strategy(exit_failure(3)).name == "ABORTION_FAILOVER"
    assert "torch" not in sys.modules
"""
CONFTEST = "import dlrover.python.common.failover\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "test_users.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def run_pytest(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=suite,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_dlrovers_import_paths_work(suite: Path) -> None:
    finished = run_pytest(suite)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "1 passed" in finished.stdout


@pytest.mark.full
def test_they_work_in_a_worker_of_xdist(suite: Path) -> None:
    """Seen from the test itself: such a session's end is up to xdist, and at times it hangs."""
    (suite / "test_users.py").write_text(
        TEST + '    open(__import__("os").environ["PYTEST_XDIST_WORKER"], "w").close()\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1"]
    said = suite / "said"
    with (
        said.open("w") as output,
        subprocess.Popen(
            command, cwd=suite, stdout=output, stderr=output, start_new_session=True
        ) as session,
    ):
        passed = (suite / "gw0").exists
        eventually(lambda: passed() or session.poll() is not None, 60, what="an end of the test")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session.pid, signal.SIGKILL)
    assert passed(), said.read_text()


def test_it_can_be_turned_off(suite: Path) -> None:
    finished = run_pytest(suite, "-p", "no:dlrover")
    assert finished.returncode != 0
    assert "No module named 'dlrover'" in finished.stdout + finished.stderr


def test_an_installed_dlrover_is_used(suite: Path) -> None:
    package = suite / "dlrover" / "python" / "common"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "enums.py").write_text("FailoverStrategy = 'theirs'\n")
    (suite / "conftest.py").unlink()
    (suite / "test_users.py").write_text(
        "from dlrover.python.common.enums import FailoverStrategy\n"
        "def test_it(): assert FailoverStrategy == 'theirs'\n"
    )
    finished = run_pytest(suite)
    assert finished.returncode == 0, finished.stdout + finished.stderr
