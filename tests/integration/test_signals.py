"""Signals to the launcher: passed on, with a grace that is kept, and one exit code for each."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.harness.launcher import Running
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually

TWO = ["--nproc-per-node=2"]
FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]

TAKES_SIGNALS = """
def take(number, frame):
    leave("signal", signal=number)
    if STUBBORN:
        say(f"rank {rank} stays")
    else:
        sys.exit(0)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, take)
leave("start")
say(f"ready {rank}")
if rank == FAILING_RANK:
    paths = [os.path.join(DIRECTORY, f"start.{r}.{attempt}.json") for r in range(world_size)]
    while not all(map(os.path.exists, paths)):
        time.sleep(0.01)
    sys.exit(3)
while True:
    time.sleep(60)
"""


def takes_signals(scripts, *, stubborn=False, failing_rank=None):
    """A script that leaves `signal` when it gets one, and then goes or stays."""
    return scripts.write(
        "takes_signals.py", TAKES_SIGNALS, STUBBORN=stubborn, FAILING_RANK=failing_rank
    )


def all_ready(running: Running, count: int = 2) -> Running:
    for rank in range(count):
        running.wait_for(f"ready {rank}")
    return running


def run_directory(tmp_path: Path) -> Path:
    [path] = (tmp_path / "state" / "dlrover" / "runs").iterdir()
    return path


def events(tmp_path: Path, kind: str) -> list[dict[str, object]]:
    """The events of the only run so far, while it goes on or afterwards."""
    found = []
    for path in (tmp_path / "state").glob("dlrover/runs/*/nodes/*/events.jsonl"):
        whole = path.read_text().rpartition("\n")[0]
        found += [json.loads(line) for line in whole.splitlines()]
    return [event for event in found if event["kind"] == kind]


# ---- passing on --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", FORWARDED, ids=lambda number: number.name)
def test_workers_get_the_launchers_signal_and_it_exits_with_128_and_its_number(
    start, scripts, number, tmp_path
):
    running = all_ready(start([*TWO, takes_signals(scripts)]))
    running.signal(number)
    finished = running.finish()
    assert finished.returncode == 128 + number, finished
    assert [fact["signal"] for fact in scripts.facts("signal")] == [number, number]
    assert f"the launcher received {number.name}" in finished.stderr
    assert "Traceback" not in finished.stderr
    result = json.loads((run_directory(tmp_path) / "result.json").read_text())
    assert (result["outcome"], result["exit_code"]) == ("signalled", 128 + number)


def test_workers_without_a_handler_end_by_the_signal(start, scripts):
    running = all_ready(start([*TWO, scripts.wait()]))
    running.signal(signal.SIGTERM)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGTERM, finished


def test_the_signals_to_handle_can_be_chosen(start, scripts):
    running = all_ready(start(["--signals-to-handle=SIGUSR1", *TWO, takes_signals(scripts)]))
    running.signal(signal.SIGUSR1)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGUSR1, finished
    assert [fact["signal"] for fact in scripts.facts("signal")] == [signal.SIGUSR1] * 2


def test_a_signal_that_is_not_handled_ends_launcher_and_workers(start, scripts):
    running = all_ready(start([*TWO, takes_signals(scripts)]))
    running.signal(signal.SIGUSR2)
    assert running.finish().returncode == -signal.SIGUSR2
    eventually(lambda: not running.processes())
    assert scripts.facts("signal") == []


def test_a_signal_to_the_launchers_group_is_passed_on_once(start, scripts):
    """As a batch system sends it: the workers are in sessions of their own."""
    running = all_ready(start([*TWO, takes_signals(scripts)]))
    running.signal_group(signal.SIGTERM)
    assert running.finish().returncode == 128 + signal.SIGTERM
    assert [fact["signal"] for fact in scripts.facts("signal")] == [signal.SIGTERM] * 2


# ---- grace -------------------------------------------------------------------------------------


def test_an_emergency_checkpoint_has_the_time_it_needs(start, scripts):
    running = all_ready(start([*TWO, scripts.emergency_checkpoint(1.0)]))
    running.signal(signal.SIGTERM)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGTERM, finished
    assert [fact["signal"] for fact in scripts.facts("checkpoint")] == [signal.SIGTERM] * 2


def test_a_stubborn_worker_is_killed_when_the_shutdown_timeout_is_over(start, scripts):
    running = all_ready(
        start(["--shutdown-timeout=1", *TWO, takes_signals(scripts, stubborn=True)])
    )
    began = time.monotonic()
    running.signal(signal.SIGTERM)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGTERM, finished
    assert 1 <= time.monotonic() - began < 20
    assert len(scripts.facts("signal")) == 2
    assert running.processes() == []


def test_a_worker_that_ignores_the_signal_is_killed_when_the_timeout_is_over(start, scripts):
    running = all_ready(start(["--shutdown-timeout=1", *TWO, scripts.ignore_sigterm()]))
    running.signal(signal.SIGTERM)
    finished = running.finish(30)
    assert finished.returncode == 128 + signal.SIGTERM, finished
    assert running.processes() == []


def test_the_timeout_holds_after_a_peers_failure(launch, scripts):
    """Rank 1 catches SIGTERM, so it gets it with its grace, and does not go."""
    script = takes_signals(scripts, stubborn=True, failing_rank=0)
    finished = launch(["--shutdown-timeout=1", *TWO, script])
    assert finished.returncode == 3, finished
    assert [fact["signal"] for fact in scripts.facts("signal")] == [signal.SIGTERM]
    [rank_1] = [fact for fact in scripts.facts("start") if fact["rank"] == 1]
    assert not is_alive(rank_1["pid"])


def test_after_a_peers_failure_nobody_waits_for_a_worker_that_ignores_sigterm(launch, scripts):
    script = scripts.write(
        "ignore.py",
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave("start")
        if rank == 0:
            while not os.path.exists(os.path.join(DIRECTORY, f"start.1.{attempt}.json")):
                time.sleep(0.01)
            sys.exit(3)
        time.sleep(60)
        """,
    )
    finished = launch(["--shutdown-timeout=50", *TWO, script])
    assert finished.returncode == 3, finished
    assert finished.duration < 30


def test_a_restart_waits_for_a_stubborn_worker_no_longer_than_the_timeout(launch, scripts):
    script = scripts.write(
        "restart.py",
        """
        if attempt > 0:
            sys.exit(0)
        signal.signal(signal.SIGTERM, lambda *_: say("no"))
        leave("start")
        if rank == 0:
            while not os.path.exists(os.path.join(DIRECTORY, f"start.1.{attempt}.json")):
                time.sleep(0.01)
            sys.exit(3)
        while True:
            time.sleep(60)
        """,
    )
    finished = launch(["--shutdown-timeout=1", "--max-restarts=1", *TWO, script])
    assert finished.returncode == 0, finished
    assert "no" in finished.stdout
    assert finished.duration < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_workers_are_stopped_for_a_restart_ends_the_run(start, scripts, number):
    script = takes_signals(scripts, stubborn=True, failing_rank=0)
    running = start(["--shutdown-timeout=2", "--max-restarts=1", *TWO, script])
    running.wait_for("rank 1 stays")
    running.signal(number)
    finished = running.finish()
    assert finished.returncode == 128 + number, finished
    assert {fact["attempt"] for fact in scripts.facts("start")} == {0}


def test_a_timeout_of_zero_kills_at_once(start, scripts):
    running = all_ready(
        start(["--shutdown-timeout=0", *TWO, takes_signals(scripts, stubborn=True)])
    )
    began = time.monotonic()
    running.signal(signal.SIGTERM)
    assert running.finish().returncode == 128 + signal.SIGTERM
    assert time.monotonic() - began < 15


def test_a_repeated_sigterm_does_not_cut_the_grace_short(start, scripts):
    """timeout(1) sends it twice, batch systems repeat it; only a person's Ctrl-C is impatience."""
    running = all_ready(start([*TWO, scripts.emergency_checkpoint(1.0)]))
    running.signal(signal.SIGTERM)
    running.wait_for(lambda _: events(scripts.directory, "workers_stopping"))
    running.signal(signal.SIGTERM)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGTERM, finished
    assert len(scripts.facts("checkpoint")) == 2


# ---- Ctrl-C ------------------------------------------------------------------------------------


def test_a_signal_that_workers_take_their_time_over_is_acknowledged(start, scripts):
    running = all_ready(
        start(["--shutdown-timeout=50", *TWO, takes_signals(scripts, stubborn=True)])
    )
    running.signal(signal.SIGTERM)
    running.wait_for("SIGTERM received: the workers have 50 s to end; Ctrl-C or SIGINT kills")
    running.signal(signal.SIGINT)
    assert running.finish().returncode == 128 + signal.SIGTERM


def test_a_second_ctrl_c_kills_at_once(start, scripts):
    running = start(
        ["--shutdown-timeout=50", *TWO, takes_signals(scripts, stubborn=True)], tty=True
    )
    all_ready(running)
    began = time.monotonic()
    running.type(b"\x03")
    running.wait_for("rank 0 stays")
    running.wait_for("rank 1 stays")
    assert running.poll() is None
    running.type(b"\x03")
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGINT, finished
    assert time.monotonic() - began < 30
    assert running.processes() == []


def test_one_ctrl_c_reaches_each_worker_once(start, scripts):
    script = scripts.write(
        "count.py",
        """
        seen = []
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        leave("start")
        say(f"ready {rank}")
        while True:
            time.sleep(0.01)
            if seen:
                say(f"rank {rank} was interrupted")
                time.sleep(0.3)  # a second one would come by now
                leave("count", seen=seen)
                sys.exit(0)
        """,
    )
    running = all_ready(start([*TWO, script], tty=True))
    running.type(b"\x03")
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGINT, finished
    assert [fact["seen"] for fact in scripts.facts("count")] == [[signal.SIGINT]] * 2


# ---- nohup -------------------------------------------------------------------------------------


def test_a_hangup_that_was_ignored_stays_ignored_in_launcher_and_workers(start, scripts):
    running = start([*TWO, scripts.wait()], ignored_signals=[signal.SIGHUP])
    all_ready(running)
    running.signal(signal.SIGHUP)
    for fact in scripts.facts("start"):
        os.kill(fact["pid"], signal.SIGHUP)
    # Nothing to wait for: that nobody has gone shows when the next signal meets everybody.
    assert running.poll(0.2) is None
    assert all(is_alive(fact["pid"]) for fact in scripts.facts("start"))
    running.signal(signal.SIGTERM)
    assert running.finish().returncode == 128 + signal.SIGTERM


def test_workers_do_not_inherit_what_the_launcher_itself_ignores(launch, scripts):
    assert launch([*TWO, scripts.environment()]).returncode == 0
    for fact in scripts.facts("environment"):
        # Python ignores these two in every process of its own.
        assert fact["ignored"] == [signal.SIGPIPE, signal.SIGXFSZ]


# ---- during rendezvous -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"],
        ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=FREE"],
        ["--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=9"],
    ],
    ids=["c10d without a peer", "static without a peer", "static without a master"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_during_rendezvous_ends_cleanly(start, scripts, tmp_path, arguments, number):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    running = start([*(each.replace("FREE", port) for each in arguments), *TWO, scripts.wait()])
    running.wait_for(lambda _: events(tmp_path, "rendezvous_started"))
    began = time.monotonic()
    running.signal(number)
    finished = running.finish()
    assert finished.returncode == 128 + number, finished
    assert time.monotonic() - began < 15
    assert "Traceback" not in finished.stderr
    assert running.processes() == []
    result = json.loads((run_directory(tmp_path) / "result.json").read_text())
    assert result["outcome"] == "signalled"


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.02 * step for step in range(25)])
def test_a_signal_at_any_moment_leaves_nothing_behind(start, scripts, delay):
    """From the first imports to the end of the workers, which live for half a second."""
    running = start([*TWO, scripts.wait(0.5)])
    running.poll(delay)
    running.signal(signal.SIGTERM)
    finished = running.finish()
    # 0: it had finished; -15: before Python ran its first line.
    assert finished.returncode in (143, -15, 0), finished
    assert "Traceback" not in finished.stderr


@pytest.mark.full
def test_a_signal_to_all_processes_of_a_node_does_not_wait_for_those_that_went(start, scripts):
    """As `scancel` sends it: the workers may be gone before the launcher looks at them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nodes = [
        start(
            [
                "--nnodes=2",
                f"--node-rank={rank}",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
                "--nproc-per-node=1",
                "--shutdown-timeout=30",
                scripts.wait(),
            ]
        )
        for rank in (0, 1)
    ]
    for rank, node in enumerate(nodes):
        node.wait_for(f"ready {rank}")
    began = time.monotonic()
    nodes[0].signal(signal.SIGTERM)
    for fact in scripts.facts("start"):
        os.kill(fact["pid"], signal.SIGTERM)
    nodes[1].signal(signal.SIGTERM)
    assert all(node.finish().returncode != 0 for node in nodes)
    assert time.monotonic() - began < 25
