"""From the events and samples of one node to metrics. Pure: the clock is in what comes in.

Useful is the time from when all workers of this node run until one of them ends badly, or a
decision stops them; `dlrover-job why` counts in the same way, over all nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlrover_cli.contracts.failover import FailureKind
from dlrover_cli.telemetry import instruments as known
from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.instruments import Instrument
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState

_STARTS_AGAIN = ("restart_workers", "restart_job", "replace_node", "admit")


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one instrument at one moment."""

    instrument: Instrument
    value: float
    time: float
    """Seconds since 1970."""
    labels: Mapping[str, str]
    is_last: bool = False
    """Whether the rank that it is about is not on this node any more."""
    is_past: bool = False
    """Whether it comes from the run as it was before this process."""


class Measurements:
    """What one node has come to; used by one thread."""

    def __init__(self, run_id: str, host: str, role: str) -> None:
        self._common = {"run_id": run_id, "node": "", "host": host, "role": role}
        self._clock = _Clock()
        self._failures: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._cause = _STARTS_AGAIN[0]
        self._has_met = False
        self._running: set[int] = set()
        self._known: set[int] = set()
        self._steps: dict[int, _Steps] = {}

    def of_event(self, event: Event) -> list[Reading]:
        """What one more event of the node's journal says; nothing for most kinds."""
        node = event["node_rank"]
        if node is not None:
            self._common["node"] = str(node)
        self._clock.begin(event["time"])
        read = _READERS.get(event["kind"])
        if read is None:
            return []
        return [*read(self, event, event["data"]), *self._times(event["time"])]

    def of_sample(self, sample: NodeSample) -> list[Reading]:
        """What one look at the workers says."""
        self._common["node"] = str(sample.node_rank)
        found = [
            reading
            for rank in sample.ranks
            if rank.global_rank in self._known  # a last look may come when it has moved already
            for reading in self._of_rank(sample.time, sample.attempt, rank)
        ]
        return [*found, *self._times(sample.time)]

    def _met(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        time = event["time"]
        if not self._has_met:  # a rate needs to know that there were none before the first
            self._has_met = True
            for kind in _STARTS_AGAIN:
                yield self._reading(time, known.RESTARTS, self._restarts[kind], kind=kind)
            for kind in (each.value for each in FailureKind):
                yield self._reading(time, known.FAILURES, self._failures[kind], kind=kind)
        yield from self._numbers(time, known.ATTEMPT, event["attempt"])
        yield from self._numbers(time, known.NODES, data.get("nodes"))
        yield from self._numbers(time, known.WORLD_SIZE, data.get("world_size"))
        yield from self._numbers(time, known.RENDEZVOUS, data.get("seconds"))

    def _workers_started(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        time = event["time"]
        self._running = {int(worker["global_rank"]) for worker in data["workers"]}
        for rank in sorted(self._known - self._running):
            yield replace(self._reading(time, known.WORKER_UP, 0, rank=rank), is_last=True)
            self._steps.pop(rank, None)
        self._known = set(self._running)
        for rank in sorted(self._running):
            yield self._reading(time, known.WORKER_UP, 1, rank=rank)
        yield from self._numbers(time, known.ATTEMPT, event["attempt"])
        yield from self._numbers(time, known.RESTART_COUNT, data.get("restart_count"))
        yield from self._numbers(time, known.GENERATION, data.get("generation"))
        took = self._clock.run(time)
        if took is not None:
            yield self._reading(time, known.RECOVERY, took, kind=self._cause)

    def _worker_exited(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        time, rank = event["time"], int(data["global_rank"])
        self._running.discard(rank)
        yield self._reading(time, known.WORKER_UP, 0, rank=rank)
        if rank in self._steps:  # it was seen in samples
            for instrument in (known.WORKER_STEP_RATE, known.WORKER_CPU, known.WORKER_MEMORY):
                yield self._reading(time, instrument, 0, rank=rank)
        if data.get("status") != 0:
            self._clock.interrupt(time)
        elif not self._running:
            self._clock.pause(time)

    def _failed(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        self._clock.interrupt(event["time"])
        kind = str(data.get("failure_kind") or "unknown")
        self._failures[kind] += 1
        yield self._reading(event["time"], known.FAILURES, self._failures[kind], kind=kind)

    def _decided(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        self._clock.interrupt(event["time"])
        action = str(data.get("action"))
        if action in _STARTS_AGAIN:
            self._cause = action
            self._restarts[action] += 1
            yield self._reading(event["time"], known.RESTARTS, self._restarts[action], kind=action)

    def _stopped(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        self._clock.pause(event["time"])
        yield from ()

    def _finished(self, event: Event, data: Mapping[str, Any]) -> Iterator[Reading]:
        self._clock.pause(event["time"])
        yield from self._numbers(event["time"], known.EXIT_CODE, data.get("exit_code"))

    def _of_rank(self, time: float, attempt: int, sample: RankSample) -> Iterator[Reading]:
        rank = sample.global_rank
        steps = self._steps.setdefault(rank, _Steps())
        yield self._reading(time, known.WORKER_STEPS, steps.total(attempt, sample.steps), rank=rank)
        if sample.state is not RankState.RUNNING or rank not in self._running:
            return  # what it used last is not what it uses now
        cpu = sample.cpu_percent
        values: tuple[tuple[Instrument, float | None], ...] = (
            (known.WORKER_STEP_RATE, sample.steps_per_second),
            (known.WORKER_CPU, None if cpu is None else cpu / 100),
            (known.WORKER_MEMORY, sample.memory_bytes),
            (known.WORKER_MOVED, sample.last_moved),
        )
        for instrument, value in values:
            yield from self._numbers(time, instrument, value, rank=rank)

    def _times(self, now: float) -> Iterator[Reading]:
        elapsed, useful = self._clock.elapsed(now), self._clock.useful(now)
        if elapsed is None:
            return
        yield self._reading(now, known.ELAPSED, elapsed)
        yield self._reading(now, known.USEFUL, useful)
        if elapsed > 0:
            yield self._reading(now, known.GOODPUT, useful / elapsed)

    def _numbers(
        self, time: float, instrument: Instrument, value: object, **labels: int
    ) -> Iterator[Reading]:
        """One reading, or none of what is not known."""
        if isinstance(value, int | float):
            yield self._reading(time, instrument, value, **labels)

    def _reading(
        self,
        time: float,
        instrument: Instrument,
        value: float,
        **labels: str | int,
    ) -> Reading:
        own = {name: str(label) for name, label in labels.items()}
        return Reading(instrument, value, time, {**self._common, **own})


class _Clock:
    """How much of the time since the beginning was useful, and since when it is not."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._done = 0.0
        self._since: float | None = None
        self._broken: float | None = None

    def begin(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def run(self, now: float) -> float | None:
        """All workers run; how long that took since an interruption, if there was one."""
        broken, self._broken, self._since = self._broken, None, now
        return None if broken is None else max(now - broken, 0.0)

    def pause(self, now: float) -> None:
        if self._since is not None:
            self._done, self._since = self._done + max(now - self._since, 0.0), None

    def interrupt(self, now: float) -> None:
        self.pause(now)
        if self._broken is None:
            self._broken = now

    def elapsed(self, now: float) -> float | None:
        return None if self._began is None else max(now - self._began, 0.0)

    def useful(self, now: float) -> float:
        return self._done + (0.0 if self._since is None else max(now - self._since, 0.0))


@dataclass(slots=True)
class _Steps:
    """The steps of one rank; each attempt counts from 0."""

    attempt: int | None = None
    before: int = 0
    current: int = 0

    def total(self, attempt: int, steps: int) -> int:
        if attempt != self.attempt or steps < self.current:
            self.before += self.current
        self.attempt, self.current = attempt, steps
        return self.before + steps


_Reader = Callable[[Measurements, Event, Mapping[str, Any]], Iterable[Reading]]

_READERS: Mapping[str, _Reader] = {
    "rendezvous_completed": Measurements._met,
    "workers_started": Measurements._workers_started,
    "worker_exited": Measurements._worker_exited,
    "failure": Measurements._failed,
    "decision": Measurements._decided,
    "workers_stopping": Measurements._stopped,
    "signal": Measurements._stopped,
    "taken_out": Measurements._stopped,
    "run_finished": Measurements._finished,
}
