"""Taking samples: about once a second, how far the workers of this node are and what they use.

The agent only says which attempt there is to look at, and that it is over. All reading, listening
and writing happens in the sampler's own thread, so that neither a slow disk nor a slow listener
stands in the way of a restart.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.breakpoints import BreakpointTeller
from dlrover_cli.agent.meters import ProcessMeter, StepRate
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.rounds import Round
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState, SampleListener
from dlrover_cli.telemetry.sample_files import SampleFiles
from dlrover_cli.workers.beats import Beat

_INTERVAL = 1.0
_FIRST_SECONDS = 0.25  # not in the moment in which the workers start
_JOIN_SECONDS = 1.0


def sampler_of(options: AgentOptions) -> "Sampler":
    """The sampler of an agent. Its samples go to whoever asked, and into the run directory."""
    directory = options.run_directory
    if directory is None:
        return Sampler(options.on_sample)
    # The files last: a disk that hangs keeps nothing from the others.
    files = SampleFiles(directory.node, options.say)
    teller = BreakpointTeller(options.say)
    return Sampler((*options.on_sample, teller, files), directory.run_id)


class Sampler:
    """Shows samples of one agent's attempts to the listeners. Owns its thread.

    Every attempt gets a first sample soon after its start, unless it is over by then, and a last
    one when it has ended.
    """

    def __init__(
        self, listeners: Sequence[SampleListener], run_id: str = "", interval: float = _INTERVAL
    ) -> None:
        self._listeners = tuple(listeners)
        self._run_id = run_id
        self._interval = interval
        self._changed = threading.Condition()
        self._current: AttemptMeter | None = None
        self._due = 0.0
        self._ended: deque[AttemptMeter] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None

    def watch(self, attempt: RunningAttempt, round_: Round) -> None:
        """Sample ``attempt`` from now on; the one before it is over. Returns at once."""
        if not self._listeners:
            return
        with self._changed:
            self._finish()
            self._current = AttemptMeter(attempt, _blank_sample(self._run_id, round_))
            self._due = time.monotonic() + min(_FIRST_SECONDS, self._interval)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """The attempt is over: take its last sample. Returns at once, also when called again."""
        with self._changed:
            self._finish()
            self._changed.notify()

    def close(self) -> None:
        """End with a last sample. A listener or disk that hangs is left behind."""
        with self._changed:
            self._finish()
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _finish(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._ended.append(current)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait_until_due()
                ended = list(self._ended)
                self._ended.clear()
                current, closing = self._current, self._closing
            for meter in ended:
                self._show(meter, ended=True)
                meter.close()
            if closing:
                return
            if current is not None and time.monotonic() >= self._due:
                self._due = time.monotonic() + self._interval
                self._show(current, ended=False)

    def _wait_until_due(self) -> None:
        while not self._ended and not self._closing:
            left = None if self._current is None else self._due - time.monotonic()
            if left is not None and left <= 0:
                return
            self._changed.wait(left)

    def _show(self, meter: "AttemptMeter", *, ended: bool) -> None:
        # A view of the run must not become its problem, whatever it raises; nor may what it reads.
        with suppress(Exception):
            sample = meter.look(ended=ended)
            for listener in self._listeners:
                with suppress(Exception):
                    listener(sample)


@dataclass(slots=True)
class AttemptMeter:
    """Measures the workers of one attempt. Looking at one that has ended does no harm."""

    attempt: RunningAttempt
    blank: NodeSample
    _rates: dict[int, StepRate] = field(init=False, default_factory=dict)
    _processes: dict[int, ProcessMeter] = field(init=False, default_factory=dict)

    def look(self, *, ended: bool) -> NodeSample:
        """How the attempt stands now; ``ended`` tells that none of its workers runs any more."""
        ranks = tuple(
            self._look_at(local_rank, pid, ended=ended)
            for local_rank, pid in sorted(self.attempt.workers.pids().items())
        )
        return replace(self.blank, time=time.time(), ended=ended, ranks=ranks)

    def close(self) -> None:
        """Close the files of the processes."""
        for process in self._processes.values():
            process.close()

    def _look_at(self, local_rank: int, pid: int, *, ended: bool) -> RankSample:
        attempt = self.attempt
        page = attempt.pages.get(local_rank)
        beat = Beat() if page is None else page.read()
        state = _state_of(attempt, local_rank, ended=ended)
        running = state is RankState.RUNNING
        rate = self._rates.setdefault(local_rank, StepRate())
        if local_rank not in self._processes:
            self._processes[local_rank] = ProcessMeter(pid, attempt.started)
        usage = self._processes[local_rank].look(time.monotonic()) if running else None
        return RankSample(
            global_rank=attempt.global_ranks[local_rank],
            local_rank=local_rank,
            pid=pid,
            state=state,
            phase=beat.phase,
            steps=beat.steps,
            # Of one that has ended: as it was, since it does not get slower any more.
            steps_per_second=rate.look(beat, time.monotonic_ns() if running else beat.step_ns),
            cpu_percent=None if usage is None else usage.cpu_percent,
            memory_bytes=None if usage is None else usage.memory_bytes,
            last_moved=_last_moved(attempt, local_rank, beat),
            at_prompt=running and beat.prompt != 0,
            at_breakpoint=running and beat.breakpoints != 0,
        )


def _blank_sample(run_id: str, round_: Round) -> NodeSample:
    """What stays the same in all samples of an attempt."""
    return NodeSample(
        time=0.0,
        run_id=run_id,
        host=socket.gethostname(),
        node_rank=round_.rank,
        nodes=round_.world_size,
        world_size=round_.placement.world_size,
        attempt=round_.counters.attempt,
        restart_count=round_.counters.restart_count,
        generation=round_.counters.generation,
        ended=False,
        ranks=(),
    )


def _state_of(attempt: RunningAttempt, local_rank: int, *, ended: bool) -> RankState:
    exit_ = attempt.exits.get(local_rank)
    if exit_ is None:
        return RankState.STOPPED if ended else RankState.RUNNING
    if exit_.status == 0:
        return RankState.SUCCEEDED
    return RankState.STOPPED if local_rank in attempt.stopped else RankState.FAILED


def _last_moved(attempt: RunningAttempt, local_rank: int, beat: Beat) -> float | None:
    """In seconds since 1970, to the millisecond."""
    moved = max(beat.last_ns / 1e9, attempt.workers.last_output(local_rank) or 0.0)
    return round(time.time() - time.monotonic() + moved, 3) if moved > 0 else None
