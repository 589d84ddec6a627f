"""Samples: rates that mean something, first and last ones, and nobody kept waiting."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.meters import ProcessMeter, StepRate
from dlrover_cli.agent.rounds import Round
from dlrover_cli.agent.sampling import Sampler
from dlrover_cli.failover.decide import Counters
from dlrover_cli.telemetry.events import record_nothing
from dlrover_cli.telemetry.live import NodeSample, RankState
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.beats import Beat, BeatPage
from dlrover_cli.workers.bootstrap.in_worker.page import STEP_NS, STEPS, open_page
from dlrover_cli.workers.inbox import Inbox
from tests.harness.waiting import eventually

SECOND = 1_000_000_000
ROUND = cast(
    "Round",
    SimpleNamespace(
        rank=0, world_size=1, placement=SimpleNamespace(world_size=2), counters=Counters()
    ),
)


class Idle:
    """Two workers that are one process each and write nothing."""

    def __init__(self, *pids: int) -> None:
        self._pids = dict(enumerate(pids))

    def pids(self):
        return self._pids

    def last_output(self, local_rank):
        return None

    def tail(self, local_rank):
        return None

    def signal(self, local_rank, signum):
        pass

    def kill(self, deadline):
        return []

    def close(self):
        pass


@pytest.fixture
def sleepers():
    """Processes that wait until they are ended."""
    running = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield [process.pid for process in running]
    for process in running:
        process.kill()
        process.wait()


def attempt_of(pids, tmp_path: Path, number: int = 0) -> RunningAttempt:
    pages = {rank: BeatPage(tmp_path / f"{number}.{rank}") for rank in range(len(pids))}
    ranks = {rank: rank + 10 for rank in pages}
    return RunningAttempt(number, Idle(*pids), ranks, {}, {}, pages, record_nothing, print)


def beat_of(steps: int, first: float, last: float) -> Beat:
    return Beat(steps=steps, first_step_ns=int(first * SECOND), step_ns=int(last * SECOND))


# ---- the rate of steps -------------------------------------------------------------------------


def test_there_is_no_rate_before_the_second_step():
    rate = StepRate()
    assert rate.look(Beat(), 1 * SECOND) is None
    assert rate.look(beat_of(1, 2, 2), 3 * SECOND) is None


def test_the_first_look_knows_the_rate_since_the_first_step():
    assert StepRate().look(beat_of(11, 1, 6), int(6.2 * SECOND)) == pytest.approx(2.0)


def test_the_rate_follows_the_last_ten_seconds():
    rate = StepRate()
    for second in range(1, 31):  # one step a second
        rate.look(beat_of(second, 1, second), second * SECOND)
    for second in range(31, 51):  # then four
        steps = 30 + 4 * (second - 30)
        fast = rate.look(beat_of(steps, 1, second), second * SECOND)
    assert fast == pytest.approx(4.0)


def test_steps_that_take_longer_than_the_window_have_a_rate_too():
    rate = StepRate()
    for second in range(1, 200):
        steps = 1 + (second - 1) // 60
        slow = rate.look(beat_of(steps, 1, 1 + 60 * (steps - 1)), second * SECOND)
    assert slow == pytest.approx(1 / 60)


def test_a_worker_that_stands_still_gets_slower_from_look_to_look():
    rate = StepRate()
    for second in range(1, 11):
        rate.look(beat_of(second, 1, second), second * SECOND)
    beat = beat_of(10, 1, 10)
    assert rate.look(beat, 12 * SECOND) == pytest.approx(1.0)
    assert rate.look(beat, 100 * SECOND) < 0.12
    assert rate.look(beat, 1000 * SECOND) < 0.011


# ---- a process ---------------------------------------------------------------------------------


def test_a_busy_process_uses_cpu_and_memory():
    meter = ProcessMeter(os.getpid(), time.monotonic())
    meter.look(time.monotonic() + 1000)
    used = os.times()
    deadline = time.monotonic() + 10
    while sum(os.times()[:2]) - sum(used[:2]) < 0.2 and time.monotonic() < deadline:
        sum(range(10_000))
    usage = meter.look(time.monotonic() + 1001)  # a fake second
    meter.close()
    assert usage is not None
    assert usage.cpu_percent is not None
    assert usage.cpu_percent > 5
    assert usage.memory_bytes > 1 << 20


def test_a_process_that_is_gone_uses_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    meter = ProcessMeter(process.pid, time.monotonic())
    process.wait()
    assert meter.look(time.monotonic()) is None
    assert meter.look(time.monotonic()) is None


# ---- the sampler -------------------------------------------------------------------------------


def test_samples_tell_steps_states_and_usage(sleepers, tmp_path):
    samples: list[NodeSample] = []
    sampler = Sampler([samples.append], interval=0.01)
    attempt = attempt_of(sleepers, tmp_path)
    page = open_page(str(attempt.pages[1].path))
    page.write(STEPS, 5)
    page.write(STEP_NS, time.monotonic_ns())
    page.close()
    sampler.watch(attempt, ROUND)
    eventually(lambda: len(samples) > 1)
    attempt.note(WorkerExit(0, 0, sleepers[0], 3, 0))
    eventually(lambda: samples[-1].ranks[0].state is RankState.FAILED)
    attempt.end(Inbox(), signal.SIGTERM, 0.0, forward_to_all=False)
    sampler.finish()
    sampler.close()
    first, last = samples[0], samples[-1]
    assert [rank.global_rank for rank in first.ranks] == [10, 11]
    assert first.ranks[0].memory_bytes
    assert first.ranks[0].last_moved is None
    assert first.ranks[1].steps == 5
    assert first.ranks[1].last_moved == pytest.approx(time.time(), abs=60)
    assert [sample.ended for sample in samples] == [False] * (len(samples) - 1) + [True]
    assert [rank.state for rank in last.ranks] == [RankState.FAILED, RankState.STOPPED]
    assert last.steps == 5


def test_an_attempt_that_ends_at_once_has_one_sample(tmp_path):
    samples: list[NodeSample] = []
    sampler = Sampler([samples.append])
    for number in range(20):
        sampler.watch(attempt_of([], tmp_path, number), ROUND)
        sampler.finish()
    sampler.close()
    assert [sample.ended for sample in samples] == [True] * 20


def test_a_listener_that_hangs_keeps_nobody_waiting(sleepers, tmp_path):
    entered, gate = threading.Event(), threading.Event()

    def hang(sample: NodeSample) -> None:
        entered.set()
        gate.wait()

    sampler = Sampler([hang], interval=0.01)
    sampler.watch(attempt_of(sleepers, tmp_path), ROUND)
    assert entered.wait(30)
    for number in range(1, 4):
        sampler.finish()
        sampler.watch(attempt_of(sleepers, tmp_path, number), ROUND)
    sampler.close()
    gate.set()


def test_a_listener_that_raises_costs_the_others_nothing(tmp_path):
    samples: list[NodeSample] = []

    def fail(sample: NodeSample) -> None:
        raise RuntimeError("not today")

    sampler = Sampler([fail, samples.append])
    sampler.watch(attempt_of([], tmp_path), ROUND)
    sampler.close()
    assert len(samples) == 1


def test_pages_may_close_while_they_are_read(tmp_path):
    for number in range(200):
        page = BeatPage(tmp_path / str(number))
        reader = threading.Thread(target=lambda page=page: [page.read() for _ in range(50)])
        reader.start()
        page.close()
        reader.join()
        assert page.read() == Beat()


def test_without_listeners_there_is_no_thread(tmp_path):
    before = threading.active_count()
    sampler = Sampler([])
    sampler.watch(attempt_of([], tmp_path), ROUND)
    assert threading.active_count() == before
    sampler.close()
