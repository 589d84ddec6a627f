"""The harness keeps its promises: launchers are faithful, and nothing is left behind."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.harness.launcher import LaunchFailed
from tests.harness.load import cpu_load
from tests.harness.processes import (
    ProcessInfo,
    assert_no_process_left,
    descendants_and_orphans,
    is_alive,
)
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

STANDALONE = ["--standalone", "--nproc-per-node=2"]
BOTH = pytest.mark.parametrize("real", [False, True], ids=["forked", "real"])


@BOTH
def test_a_launch_returns_status_and_both_streams(launch, scripts, real):
    finished = launch([*STANDALONE, scripts.hello()], command="torchrun", real=real)
    assert finished.returncode == 0, finished
    assert sorted(finished.stdout.split("\n")[:2]) == [f"hello from rank {r} of 2" for r in (0, 1)]
    assert "warning from rank 1" in finished.stderr
    assert 0 < finished.duration < 60


@BOTH
def test_a_launch_sees_exactly_the_given_environment_and_directory(
    launcher, launch, scripts, tmp_path, real
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    given = {"OMP_NUM_THREADS": "3", "ODD": "a=b\nc", "HOME": None}
    script = scripts.environment()
    argv = ["--nproc-per-node=1", script, "--lr", "0.1", "--help"]
    finished = launch(argv, command="torchrun", env=given, cwd=elsewhere, real=real)
    assert finished.returncode == 0, finished
    [seen] = scripts.facts("environment")
    assert seen["argv"] == [str(script), "--lr", "0.1", "--help"]
    assert seen["cwd"] == str(elsewhere)
    expected = launcher.environment(given)
    assert {name: seen["env"].get(name) for name in expected} == expected
    assert "HOME" not in seen["env"]
    assert "OPENBLAS_NUM_THREADS" not in seen["env"]
    assert not [name for name in seen["env"] if name.startswith("PYTEST")]


def test_a_forked_launcher_looks_like_an_executed_one(start, scripts):
    seen = []
    for real in (False, True):
        running = start([*STANDALONE, scripts.wait()], command="torchrun", real=real)
        running.wait_for("ready 0")
        running.wait_for("ready 1")
        seen.append(
            {
                "signals": signal_sets(running.pid),
                "leads its session": os.getsid(running.pid) == running.pid,
                "leads its group": os.getpgid(running.pid) == running.pid,
                "open files": len(list(Path(f"/proc/{running.pid}/fd").iterdir())),
            }
        )
        running.signal(signal.SIGTERM)
        running.finish()
    assert seen[0] == seen[1]


def test_a_forked_launcher_runs_the_console_script(launch):
    ends = []
    for real in (False, True):
        argv = ["--nproc-per-node=1", "--logs-specs=none-such", "train.py"]
        finished = launch(argv, command="torchrun", real=real)
        assert "bin/torchrun" in finished.stderr, finished
        ends.append((finished.returncode, finished.stderr.splitlines()[-1]))
    assert ends[0] == ends[1]


@BOTH
def test_an_ignored_signal_is_inherited(start, scripts, real):
    running = start(
        ["--nproc-per-node=1", scripts.wait()],
        command="torchrun",
        ignored_signals=[signal.SIGHUP],
        real=real,
    )
    hangup, terminate = (1 << number - 1 for number in (signal.SIGHUP, signal.SIGTERM))
    eventually(lambda: signal_sets(running.pid)["SigIgn"] & hangup)
    assert not signal_sets(running.pid)["SigIgn"] & terminate
    running.kill()
    running.finish()
    running.discard()


@BOTH
def test_signals_reach_the_launcher_and_waiting_sees_its_output(start, scripts, real):
    running = start([*STANDALONE, scripts.wait()], command="torchrun", real=real)
    running.wait_for("ready 0")
    running.wait_for("ready 1")
    assert len(running.processes()) == 3
    running.signal(signal.SIGTERM)
    finished = running.finish()
    assert finished.returncode != 0
    assert "SIGTERM" in finished.stderr or "Signal 15" in finished.stderr, finished


def test_waiting_fails_at_once_when_the_launcher_ends(start, scripts):
    running = start(["--nproc-per-node=1", scripts.hello()], command="torchrun")
    began = time.monotonic()
    with pytest.raises(LaunchFailed, match="hello from rank 0"):
        running.wait_for("never", deadline=60)
    assert time.monotonic() - began < 30


def test_a_launch_past_its_timeout_is_killed_with_its_workers(launch, scripts, process_token):
    with pytest.raises(LaunchFailed, match="still running after"):
        launch([*STANDALONE, scripts.ignore_sigterm()], command="torchrun", timeout=3)
    assert descendants_and_orphans(process_token) == []


def test_orphans_of_a_killed_launcher_are_found(start, scripts, process_token):
    running = start([*STANDALONE, scripts.grandchildren(1)], command="torchrun")
    running.wait_for("ready 0")
    running.wait_for("ready 1")
    running.kill()
    assert running.finish().returncode == -signal.SIGKILL
    # torchrun's workers outlive a killed agent: 2 workers and 2 grandchildren.
    orphans = descendants_and_orphans(process_token)
    assert len(orphans) == 4
    with pytest.raises(AssertionError, match="left running"):
        assert_no_process_left(process_token, deadline=0.1)
    assert not any(is_alive(orphan.pid) for orphan in orphans)


def test_a_terminal_is_a_terminal(start, scripts):
    script = scripts.write("tty.py", "say(f'tty {[os.isatty(n) for n in range(3)]}')\n")
    running = start(["--nproc-per-node=1", script], command="torchrun", tty=True)
    finished = running.finish()
    assert "tty [True, True, True]" in finished.stdout, finished


def test_ctrl_c_on_the_terminal_reaches_the_launcher(start, scripts):
    running = start(["--nproc-per-node=1", scripts.wait()], command="torchrun", tty=True)
    running.wait_for("ready 0")
    running.type(b"\x03")
    assert running.finish().returncode != 0


def test_standard_input_is_what_the_test_gives(launch):
    finished = launch(
        ["-c", "import sys; print(sys.stdin.read().upper())"],
        command=[sys.executable],
        stdin=b"some text",
    )
    assert finished.stdout == "SOME TEXT\n"


def test_an_unknown_console_script_is_an_error(launch):
    with pytest.raises(ValueError, match="mpirun"):
        launch([], command="mpirun")


def test_eventually_returns_the_answer_or_says_what_did_not_happen():
    answers = iter([0, None, "yes"])
    assert eventually(lambda: next(answers)) == "yes"
    with pytest.raises(AssertionError, match=r"the moon did not come true within 0\.05 s"):
        eventually(lambda: False, 0.05, what="the moon")


def test_load_keeps_processors_busy_and_ends(process_token):
    with cpu_load(2):
        spinners = eventually(lambda: busy(process_token, count=2))
    assert not any(is_alive(spinner.pid) for spinner in spinners)


def test_crash_scripts_fail_as_told(launch, scripts):
    finished = launch(
        ["--nproc-per-node=2", "--max-restarts=1", scripts.crash(rank=1, how="SIGSEGV")],
        command="torchrun",
    )
    assert finished.returncode == 0, finished
    assert [(f["attempt"], f["rank"]) for f in scripts.facts("end")][-2:] == [(1, 0), (1, 1)]


def test_gloo_scripts_sum_the_ranks(launch, scripts):
    finished = launch([*STANDALONE, scripts.gloo_all_reduce()], command="torchrun")
    assert finished.returncode == 0, finished
    assert [fact["sum"] for fact in scripts.facts("sum")] == [1.0, 1.0]


def signal_sets(pid: int) -> dict[str, int]:
    """The masks of blocked, ignored and caught signals."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if line.startswith("Sig"))
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")}


def busy(token: str, count: int) -> list[ProcessInfo]:
    """The running spinners, once there are enough."""
    found = [process for process in descendants_and_orphans(token) if process.state == "R"]
    return found if len(found) == count else []
