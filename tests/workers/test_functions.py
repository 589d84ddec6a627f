"""Function workers, by every start method, behind the seam that the agent sees."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver, resource_tracker

import pytest
import torch

from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.workers.functions import FunctionStarter
from dlrover_cli.workers.inbox import Inbox, SignalReceived
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams
from tests.harness.processes import TOKEN_VARIABLE, is_alive
from tests.harness.waiting import eventually
from tests.workers import user_functions
from tests.workers.helpers import all_exits, next_exit, read_pid
from tests.workers.helpers import request as launches_of

# A spawned worker or a fork server imports torch: one test of each in the default run is enough.
SPAWN = pytest.param("spawn", marks=pytest.mark.full)
ALL = ["fork", pytest.param("forkserver", marks=pytest.mark.full), SPAWN]


@pytest.fixture
def start_function(inbox, process_token, request):
    """`start_function(method, function, *args, count=2) -> workers`."""
    starters = []

    def start(method, function, *args, count=2, **options):
        if method == "forkserver":
            request.getfixturevalue("fork_server")
        starter = FunctionStarter("trainer", method)
        starters.append(starter)
        launches = launches_of([args] * count, program=function, **options)
        return starter.start(launches, inbox)

    yield start
    for starter in starters:
        starter.close(leave_survivors=False)


@pytest.fixture(scope="module")
def fork_server():
    """One for all tests that use it, which therefore belongs to none of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(TOKEN_VARIABLE)
        forkserver.set_forkserver_preload(["torch.distributed.elastic.multiprocessing.errors"])
        forkserver.ensure_running()
    yield
    forkserver.set_forkserver_preload(["__main__"])
    forkserver._forkserver._stop()


@pytest.fixture(scope="module", autouse=True)
def tracker_of_multiprocessing():
    """Lives as long as our process, and is started outside of any test."""
    resource_tracker.ensure_running()


def pids_of(directory, ranks=2):
    """The pids that `mark_and_sleep` left, once all ranks have."""
    paths = [directory / str(rank) for rank in range(ranks)]
    eventually(lambda: all(path.exists() for path in paths), 60)
    return [int(pid) for path in paths for pid in path.read_text().split()]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_values_come_back_by_rank(start_function, inbox, method):
    value = {"tensor": torch.ones(3), "text": "é"}
    workers = start_function(method, user_functions.rank_and, value)
    exits = all_exits(inbox, workers)
    workers.close()
    assert {rank: exit_.status for rank, exit_ in exits.items()} == {0: 0, 1: 0}
    for rank, exit_ in exits.items():
        seen_rank, seen = exit_.return_value
        assert seen_rank == rank
        assert seen["tensor"].equal(torch.ones(3))
        assert seen["text"] == "é"


@pytest.mark.parametrize("method", ALL)
def test_a_function_runs_in_a_process_that_is_its_own(start_function, inbox, method):
    with inbox.receiving_signals([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]):
        workers = start_function(
            method, user_functions.surroundings, count=1, env={"FROM_THE_AGENT": "yes"}
        )
        seen = next_exit(inbox).return_value
    workers.close()
    assert seen == {
        "leads its session": True,
        "handlers": {
            "SIGTERM": True,
            "SIGINT": True,
            "SIGHUP": signal.getsignal(signal.SIGHUP) != signal.SIG_IGN,  # else under nohup
            "SIGQUIT": True,
        },
        "blocked": [],
        "variable": "yes",
    }


@pytest.mark.parametrize("method", ["fork", SPAWN])
def test_our_own_signal_handlers_are_left_alone(start_function, inbox, method):
    with inbox.receiving_signals([signal.SIGTERM]):
        ours = signal.getsignal(signal.SIGTERM)
        workers = start_function(method, user_functions.leave, 0, count=1)
        assert signal.getsignal(signal.SIGTERM) == ours
        os.kill(os.getpid(), signal.SIGTERM)
        seen = [inbox.next(), inbox.next()]
        assert SignalReceived(signal.SIGTERM) in seen
    workers.close()


def test_a_value_larger_than_any_pipe_needs_nobody_to_read_it(start_function, inbox):
    workers = start_function("fork", user_functions.large, 50_000_000)
    exits = all_exits(inbox, workers)
    assert [len(exit_.return_value) for exit_ in exits.values()] == [50_000_000] * 2
    workers.close()


@pytest.mark.parametrize(
    "function, argument, status",
    [
        (user_functions.fail, "on purpose", 1),
        (user_functions.leave, 7, 7),
        (user_functions.leave, 0, 0),
        (user_functions.leave_at_once, 0, 0),
        (user_functions.crash, signal.SIGSEGV, -signal.SIGSEGV),
    ],
    ids=["exception", "exit 7", "exit 0", "os._exit 0", "SIGSEGV"],
)
def test_every_end_has_its_status(start_function, inbox, function, argument, status):
    workers = start_function("fork", function, argument, count=1)
    exit_ = next_exit(inbox)
    assert (exit_.status, exit_.return_value) == (status, None)
    workers.close()


def test_one_failure_is_reported_while_the_others_run(start_function, inbox, tmp_path):
    """torch reports it only when it has ended the others, which may take very long."""
    workers = start_function("fork", mark_or_fail, str(tmp_path))
    exit_ = next_exit(inbox)
    assert (exit_.local_rank, exit_.status) == (1, 1)
    assert is_alive(workers.pids()[0])
    workers.kill(10.0)
    workers.close()


def mark_or_fail(directory):
    if os.environ["LOCAL_RANK"] == "1":
        raise RuntimeError("on purpose")
    user_functions.mark_and_sleep(directory)


def test_the_error_file_is_torchs(start_function, inbox, tmp_path):
    path = tmp_path / "error.json"
    workers = start_function(
        "fork",
        user_functions.fail,
        "on purpose",
        count=1,
        env={"TORCHELASTIC_ERROR_FILE": str(path)},
    )
    assert next_exit(inbox).status == 1
    assert "RuntimeError: on purpose" in path.read_text()
    workers.close()


@pytest.mark.parametrize("method", ALL)
def test_streams_are_teed_kept_and_prefixed_as_for_commands(
    start_function, inbox, method, tmp_path
):
    streams = WorkerStreams(
        StreamPlan(file=str(tmp_path / "stdout.log")),
        StreamPlan(file=str(tmp_path / "stderr.log"), keep_tail=True),
    )
    workers = start_function(method, user_functions.speak, "text", count=1, streams=streams)
    assert next_exit(inbox).status == 0
    assert workers.tail(0) == "TEXT"
    workers.close()
    assert (tmp_path / "stdout.log").read_text() == "text"
    assert (tmp_path / "stderr.log").read_text() == "TEXT"


@pytest.mark.parametrize("method", ALL)
def test_arguments_may_be_queues_of_multiprocessing(start_function, inbox, method):
    queue = multiprocessing.get_context(method).SimpleQueue()
    workers = start_function(method, user_functions.count_in_queue, queue, 42)
    assert {exit_.status for exit_ in all_exits(inbox, workers).values()} == {0}
    workers.close()
    assert sorted(queue.get() for _ in range(2)) == [(0, 42), (1, 42)]
    queue.close()


@pytest.mark.parametrize("method", ALL)
def test_killing_ends_workers_and_what_is_below_them(start_function, inbox, method, tmp_path):
    workers = start_function(method, user_functions.mark_and_sleep, str(tmp_path))
    pids = pids_of(tmp_path)
    assert set(workers.pids().values()) < set(pids)
    assert workers.kill(10.0) == []
    assert not any(map(is_alive, pids))
    assert {exit_.status for exit_ in all_exits(inbox, workers).values()} == {-9}
    workers.close()


@pytest.mark.parametrize("method", ["fork", SPAWN])
def test_a_signal_goes_to_the_group_of_one_worker(start_function, inbox, method, tmp_path):
    workers = start_function(method, user_functions.mark_and_sleep, str(tmp_path))
    worker, child, other, others_child = pids_of(tmp_path)
    workers.signal(0, signal.SIGTERM)
    exit_ = next_exit(inbox)
    assert (exit_.local_rank, exit_.pid, exit_.status) == (0, worker, -signal.SIGTERM)
    eventually(lambda: not is_alive(child))
    assert is_alive(other)
    assert is_alive(others_child)
    workers.signal(0, signal.SIGTERM)  # it is gone; nothing happens
    workers.kill(10.0)
    workers.close()


def test_a_signal_in_the_first_moment_ends_a_forked_worker(start_function, inbox):
    """The child must not take it with the handlers that it has from us."""
    with inbox.receiving_signals([signal.SIGTERM]):
        for attempt in range(10):
            workers = start_function(
                "fork", user_functions.crash, signal.SIGSTOP, count=1, attempt=attempt
            )
            workers.signal(0, signal.SIGTERM)
            workers.signal(0, signal.SIGCONT)
            eventually(lambda workers=workers: not is_alive(workers.pids()[0]))
            assert next_exit(inbox).status == -signal.SIGTERM
            workers.close()


def test_an_end_is_noticed_although_a_forked_child_lives_on(start_function, inbox, tmp_path):
    path = tmp_path / "pid"
    workers = start_function("fork", user_functions.fork_and_end, str(path), count=1)
    exit_ = next_exit(inbox)
    assert exit_.status == 0
    assert is_alive(exit_.return_value)
    workers.close()
    os.kill(exit_.return_value, signal.SIGKILL)
    assert read_pid(path) == exit_.return_value


def test_what_a_function_leaves_behind_can_go_on_writing(inbox, process_token, tmp_path):
    starter = FunctionStarter("trainer", "fork")
    pid, log = tmp_path / "pid", tmp_path / "stderr.log"
    streams = WorkerStreams(StreamPlan(), StreamPlan(file=str(log), keep_tail=True))
    launches = launches_of(
        [(str(pid),)], program=user_functions.leave_somebody_talking, streams=streams
    )
    workers = starter.start(launches, inbox)
    assert next_exit(inbox).status == 0
    eventually(lambda: read_pid(pid))
    workers.close()
    starter.close(leave_survivors=True)
    os.kill(read_pid(pid), signal.SIGUSR1)
    eventually(lambda: log.read_text() == "early late")


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.full)])
def test_a_function_that_cannot_be_pickled_is_a_sentence(start_function, method):
    lock = threading.Lock()
    with pytest.raises(LaunchError, match="cannot be pickled") as caught:
        start_function(method, lambda: None)
    assert "top level of a module" in caught.value.hint
    with pytest.raises(LaunchError, match=r"cannot pickle '_thread\.lock' object"):
        start_function(method, user_functions.rank_and, lock)


def test_a_local_function_can_be_forked(start_function, inbox):
    outside = {"value": 5}
    workers = start_function("fork", lambda: outside["value"])
    assert {exit_.return_value for exit_ in all_exits(inbox, workers).values()} == {5}
    workers.close()


def test_a_value_that_cannot_be_pickled_fails_its_worker(start_function, inbox):
    workers = start_function("fork", user_functions.return_unpicklable, count=1)
    assert next_exit(inbox).status == 1
    workers.close()


def test_a_value_that_cannot_be_read_here_is_a_sentence(start_function, inbox):
    workers = start_function("fork", user_functions.return_unreadable, count=1)
    with pytest.raises(LaunchError, match=r"local rank 0 returned cannot be read.*not here"):
        inbox.next()
    workers.close()


def test_an_unknown_start_method_is_refused():
    with pytest.raises(UsageError, match="no start method 'thread'") as caught:
        FunctionStarter("trainer", "thread")
    assert "spawn" in caught.value.hint


def test_nothing_is_left_open_after_many_attempts(process_token):
    inbox = Inbox()
    starter = FunctionStarter("trainer", "fork")
    before = None
    for attempt in range(4):
        workers = starter.start(
            launches_of([(1,)] * 2, program=user_functions.rank_and, attempt=attempt), inbox
        )
        all_exits(inbox, workers)
        workers.close()
        now = sorted(os.listdir("/proc/self/fd"))
        before = before or now
        assert now == before
    starter.close(leave_survivors=False)
    inbox.close()
