"""What the harness does about processes that are left: found, killed, and the run fails."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import is_alive
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def inner_pytest(tmp_path):
    """Starts a test run of its own, with this suite's fixtures, on the given source."""

    def start(source: str) -> subprocess.Popen[str]:
        (tmp_path / "test_inner.py").write_text(source)
        options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-q"]
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", tmp_path],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def test_a_test_that_leaves_a_process_fails_and_the_process_goes(inner_pytest, tmp_path):
    run = inner_pytest(
        "import pathlib, subprocess\n"
        "def test_leaves_a_process():\n"
        "    child = subprocess.Popen(['sleep', '100'])\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "    child.returncode = 0  # nobody waits for it\n"
    )
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "processes were left running" in output
    assert "sleep 100" in output
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_test_that_does_not_finish_its_launcher_fails(inner_pytest):
    run = inner_pytest(
        "import sys\n"
        "def test_forgets_its_launcher(start):\n"
        "    start(['-c', 'import time; time.sleep(100)'], command=[sys.executable])\n"
    )
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "did not finish its launchers" in output


def test_server_launchers_and_workers_go_when_the_tests_are_killed(inner_pytest, tmp_path):
    pids = tmp_path / "pids"
    run = inner_pytest(
        "import pathlib, time\n"
        "from tests.harness.processes import process_info\n"
        "def test_is_killed(start, scripts):\n"
        "    running = start(['--nproc-per-node=1', scripts.wait()], command='torchrun')\n"
        "    running.wait_for('ready 0')\n"
        "    pids = [process_info(running.pid).parent, *running.processes()]\n"
        f"    pathlib.Path({str(pids) + '.new'!r}).write_text(' '.join(map(str, pids)))\n"
        f"    pathlib.Path({str(pids) + '.new'!r}).rename({str(pids)!r})\n"
        "    time.sleep(100)\n"
    )
    eventually(pids.exists, 60)
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=60)
    everybody = [int(pid) for pid in pids.read_text().split()]
    assert len(everybody) == 3  # the server, the launcher, its worker
    eventually(lambda: not any(map(is_alive, everybody)), 10, what="the end of all processes")
