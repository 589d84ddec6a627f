"""Command workers behind the seam that the agent sees."""

import os
import resource
import signal
import sys
import threading
import time

import pytest

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually
from tests.workers.helpers import (
    NOWHERE,
    SLEEP,
    all_exits,
    next_exit,
    python,
    read_pid,
    request,
)

GRANDCHILD = "sleep 60 & echo $! > $1; wait"


def kept_stderr(path):
    return WorkerStreams(StreamPlan(), StreamPlan(file=str(path), keep_tail=True))


def open_descriptors():
    return set(os.listdir("/proc/self/fd"))


# ---- starting and ending -----------------------------------------------------------------------


def test_every_end_is_posted_once_with_its_status(starter, inbox):
    codes = [0, 1, 7, 255]
    workers = starter.start(request([python(f"import os; os._exit({c})") for c in codes]), inbox)
    exits = all_exits(inbox, workers)
    assert {rank: exit_.status for rank, exit_ in exits.items()} == dict(enumerate(codes))
    assert {rank: exit_.pid for rank, exit_ in exits.items()} == workers.pids()
    assert all(exit_.usage["max_rss_kb"] > 0 for exit_ in exits.values())
    assert all(abs(exit_.time_ns - time.time_ns()) < 60e9 for exit_ in exits.values())
    workers.close()
    assert inbox.next(0.0) is None


def test_an_end_before_the_last_start_is_not_lost(starter, inbox):
    """The first worker is long gone when the last one has been started."""
    workers = starter.start(request([python("")] * 12), inbox)
    assert len(all_exits(inbox, workers)) == 12
    workers.close()


def test_many_attempts_follow_each_other_without_leaking(starter, inbox):
    before, threads = None, None
    for attempt in range(5):
        argvs = [python("import os; os._exit(3)"), python(SLEEP)]
        workers = starter.start(request(argvs, attempt=attempt), inbox)
        exit_ = next_exit(inbox)
        assert (exit_.attempt, exit_.local_rank, exit_.status) == (attempt, 0, 3)
        assert workers.kill(10.0) == []
        workers.close()
        killed = next_exit(inbox)
        assert (killed.attempt, killed.local_rank, killed.status) == (attempt, 1, -9)
        assert inbox.next(0.0) is None
        before = before or open_descriptors()
        threads = threads or threading.active_count()
    assert open_descriptors() == before
    assert threading.active_count() == threads


def test_an_end_that_was_reported_between_attempts_keeps_its_number(starter, inbox):
    first = starter.start(request([python(SLEEP)], attempt=4), inbox)
    first.close()
    first.signal(0, signal.SIGKILL)
    eventually(lambda: not is_alive(first.pids()[0]))
    second = starter.start(request([python(SLEEP)], attempt=5), inbox)
    exit_ = next_exit(inbox)
    assert (exit_.attempt, exit_.pid) == (4, first.pids()[0])
    second.kill(10.0)
    assert next_exit(inbox).attempt == 5
    second.close()


def test_a_signal_reaches_one_worker_and_a_second_one_does_no_harm(starter, inbox):
    workers = starter.start(request([python(SLEEP)] * 2), inbox)
    workers.signal(1, signal.SIGTERM)
    exit_ = next_exit(inbox)
    assert (exit_.local_rank, exit_.status) == (1, -signal.SIGTERM)
    workers.signal(1, signal.SIGTERM)
    assert is_alive(workers.pids()[0])
    workers.kill(10.0)
    workers.close()


def test_killing_ends_what_the_workers_have_started(starter, inbox, tmp_path):
    paths = [tmp_path / "0", tmp_path / "1"]
    argvs = [("-c", GRANDCHILD, "sh", str(path)) for path in paths]
    workers = starter.start(request(argvs, program="sh"), inbox)
    for path in paths:
        eventually(lambda path=path: read_pid(path))
    assert workers.kill(10.0) == []
    assert not any(is_alive(read_pid(path)) for path in paths)
    assert {exit_.status for exit_ in all_exits(inbox, workers).values()} == {-9}
    workers.close()


def test_killing_before_anything_was_read_still_posts_every_end(starter, inbox):
    workers = starter.start(request([python("import os; os._exit(5)")] * 3), inbox)
    assert workers.kill(10.0) == []
    assert {exit_.status for exit_ in all_exits(inbox, workers).values()} <= {5, -9}
    workers.close()


# ---- what cannot be started --------------------------------------------------------------------


@pytest.mark.parametrize(
    "program, sentence, hint",
    [
        ("no-such-program", "cannot start 'no-such-program': No such file", "PATH"),
        ("/etc/passwd", "Permission denied", "executable"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_sentence(starter, inbox, program, sentence, hint):
    with pytest.raises(LaunchError, match=sentence) as caught:
        starter.start(request([()], program=program), inbox)
    assert hint in caught.value.hint


def test_a_script_without_interpreter_is_a_sentence(starter, inbox, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(LaunchError, match="Exec format error") as caught:
        starter.start(request([()], program=str(script)), inbox)
    assert "#!" in caught.value.hint


def test_an_environment_that_is_too_large_is_a_sentence(starter, inbox):
    large = {"LARGE": "x" * (1 << 20)}
    with pytest.raises(LaunchError, match="Argument list too long") as caught:
        starter.start(request([python("")], env=large), inbox)
    assert "environment" in caught.value.hint


def test_all_start_or_none(starter, inbox, tmp_path):
    """The second worker's log cannot be opened: the first one has to go again."""
    good = WorkerStreams(StreamPlan(), StreamPlan(file=str(tmp_path / "log"), keep_tail=True))
    bad = WorkerStreams(StreamPlan(file=str(tmp_path / "missing" / "log")), StreamPlan())
    whole = request([python(SLEEP)] * 2, streams=good)
    broken = request([python(SLEEP)] * 2, streams=bad)
    mixed = type(whole)(0, whole.entrypoint, (whole.launches[0], broken.launches[1]))
    before = open_descriptors()
    with pytest.raises(LaunchError, match=r"stdout of local rank 1: No such file.*missing/log"):
        starter.start(mixed, inbox)
    assert open_descriptors() == before
    # The starter is as good as before.
    workers = starter.start(request([python("")], attempt=1), inbox)
    while (exit_ := next_exit(inbox)).attempt == 0:
        assert exit_.status == -9
    assert exit_.status == 0
    workers.close()


@pytest.mark.parametrize("allowed", [1, 4, 8])
def test_too_many_open_files_is_a_sentence(inbox, process_token, tmp_path, allowed):
    streams = kept_stderr(tmp_path / "log")
    starter = CommandStarter(lambda line: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + allowed, hard))
        with pytest.raises(LaunchError, match="Too many open files") as caught:
            starter.start(request([python("")] * 9, streams=streams), inbox)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        starter.close(leave_survivors=False)
    assert "ulimit -n" in caught.value.hint


# ---- streams -----------------------------------------------------------------------------------


def test_last_words_are_at_hand_as_soon_as_the_end_is_known(starter, inbox, tmp_path):
    code = "import os, sys; os.write(2, b'x' * 300_000 + b'the reason'); os._exit(1)"
    for attempt in range(5):
        launches = request(
            [python(code)] * 2, attempt=attempt, streams=kept_stderr(tmp_path / "log")
        )
        workers = starter.start(launches, inbox)
        for _ in range(2):
            exit_ = next_exit(inbox)
            assert workers.tail(exit_.local_rank).endswith("the reason")
        workers.close()


def test_a_stream_that_is_not_kept_has_no_tail(starter, inbox):
    workers = starter.start(request([python("")]), inbox)
    assert workers.tail(0) is None
    all_exits(inbox, workers)
    workers.close()


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_of_ours_is_nothing_to_a_worker(inbox, process_token, tmp_path, closed):
    """And not whatever descriptor of ours got its number."""
    seen = tmp_path / "seen"
    code = (
        "import os, sys;open(sys.argv[1], 'w').write(os.readlink(f'/proc/self/fd/{sys.argv[2]}'))"
    )
    streams = WorkerStreams(StreamPlan(console=1), StreamPlan(console=2, keep_tail=True))
    if closed == 2:
        streams = WorkerStreams(StreamPlan(), StreamPlan(console=2))
    saved = os.dup(closed)
    os.close(closed)
    try:
        starter = CommandStarter(lambda line: None)
        argv = python(code, str(seen), str(closed))
        workers = starter.start(request([argv], streams=streams), inbox)
        all_exits(inbox, workers)
        workers.close()
        starter.close(leave_survivors=False)
    finally:
        os.dup2(saved, closed)
        os.close(saved)
    assert seen.read_text() == os.devnull


def test_a_grandchild_that_holds_the_pipe_does_not_hold_up_the_end(starter, inbox, tmp_path):
    argv = ("-c", "echo before >&2; sleep 60 & echo $! > $1", "sh", str(tmp_path / "pid"))
    log = tmp_path / "log"
    workers = starter.start(request([argv], program="sh", streams=kept_stderr(log)), inbox)
    assert next_exit(inbox).status == 0
    began = time.monotonic()
    workers.close()
    assert time.monotonic() - began < 4
    assert log.read_text() == "before\n"
    assert is_alive(read_pid(tmp_path / "pid"))


LATE_WORDS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
if os.fork() == 0:
    with open(sys.argv[1] + ".new", "w") as file: file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    signal.sigwait([signal.SIGUSR1])
    os.write(2, b"after\\n")
    os.write(2, b"still here\\n")
    os._exit(0)
os.write(2, b"before\\n")
"""


def test_what_is_left_behind_can_go_on_writing(inbox, process_token, tmp_path):
    """As under torchrun, a background process keeps its stderr when the launcher is done."""
    starter = CommandStarter(lambda line: None)
    console_read, console = os.pipe()
    streams = WorkerStreams(
        StreamPlan(), StreamPlan(file=str(tmp_path / "log"), console=console, keep_tail=True)
    )
    workers = starter.start(
        request([python(LATE_WORDS, str(tmp_path / "pid"))], streams=streams), inbox
    )
    assert next_exit(inbox).status == 0
    eventually(lambda: read_pid(tmp_path / "pid"))
    workers.close()
    starter.close(leave_survivors=True)
    starter.close(leave_survivors=False)  # too late, and does not wait for what was left
    os.close(console)
    survivor = read_pid(tmp_path / "pid")
    assert is_alive(survivor)
    os.kill(survivor, signal.SIGUSR1)
    with open(console_read) as file:
        assert file.read() == "before\nafter\nstill here\n"  # and then its end, for all have gone
    assert (tmp_path / "log").read_text() == "before\nafter\nstill here\n"


def test_nobody_left_behind_means_no_nursery_left(inbox, process_token):
    starter = CommandStarter(lambda line: None)
    workers = starter.start(request([python("")], streams=NOWHERE), inbox)
    all_exits(inbox, workers)
    workers.close()
    pid = starter._nursery._process.pid
    starter.close(leave_survivors=True)
    assert not is_alive(pid)


# ---- the end of the nursery --------------------------------------------------------------------


def test_the_nurserys_death_ends_the_workers_and_what_is_below_them(starter, inbox, tmp_path):
    paths = [tmp_path / "0", tmp_path / "1"]
    argvs = [("-c", GRANDCHILD, "sh", str(path)) for path in paths]
    workers = starter.start(request(argvs, program="sh"), inbox)
    for path in paths:
        eventually(lambda path=path: read_pid(path))
    os.kill(starter._nursery._process.pid, signal.SIGKILL)
    exits = all_exits(inbox, workers)
    assert {exit_.status for exit_ in exits.values()} == {-signal.SIGKILL}
    assert not any(map(is_alive, [*workers.pids().values(), *map(read_pid, paths)]))
    assert workers.kill(10.0) == []
    workers.close()
    # And the next attempt gets a new one.
    again = starter.start(request([python("")], attempt=1), inbox)
    assert next_exit(inbox).status == 0
    again.close()


def test_a_nursery_that_died_between_attempts_is_replaced(starter, inbox):
    first = starter.start(request([python("")]), inbox)
    all_exits(inbox, first)
    first.close()
    process = starter._nursery._process
    process.kill()
    eventually(lambda: not is_alive(process.pid))
    second = starter.start(request([python("")], attempt=1), inbox)
    assert next_exit(inbox).status == 0
    second.close()


def test_killing_works_without_the_nursery(starter, inbox, tmp_path):
    """It may die in the very moment when everything has to be stopped."""
    path = tmp_path / "pid"
    workers = starter.start(request([("-c", GRANDCHILD, "sh", str(path))], program="sh"), inbox)
    eventually(lambda: read_pid(path))
    os.kill(starter._nursery._process.pid, signal.SIGKILL)
    workers.signal(0, signal.SIGTERM)
    assert workers.kill(10.0) == []
    assert not any(map(is_alive, [workers.pids()[0], read_pid(path)]))
    workers.close()


def test_workers_run_in_the_interpreter_that_was_asked_for(starter, inbox, tmp_path):
    path = tmp_path / "log"
    code = "import sys; sys.stderr.write(sys.executable)"
    workers = starter.start(request([python(code)], streams=kept_stderr(path)), inbox)
    all_exits(inbox, workers)
    assert workers.tail(0) == sys.executable
    workers.close()
