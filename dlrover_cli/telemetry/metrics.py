"""Metrics to the user's handlers, each in a thread of its own, so that none can hold up the agent.

`load_metrics_handlers` makes the handlers, `MetricsFanOut` is the one handler that torch sees, and
`install` tells torch about it.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from torch.distributed.elastic.metrics import api as metrics
from torch.distributed.elastic.metrics.api import MetricData, MetricHandler

from dlrover_cli.errors import ConfigError
from dlrover_cli.plugins.construct import construct
from dlrover_cli.plugins.faults import describe, user_frame
from dlrover_cli.plugins.key_values import TakenKeys
from dlrover_cli.plugins.reference import Found, check_class, resolve
from dlrover_cli.telemetry.events import Recorder

OPTION = "--metrics_handler"
AGENT_GROUP = "torchelastic"
QUEUE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class NamedHandler:
    """A handler and the reference by which messages speak of it."""

    reference: str
    handler: MetricHandler


def load_metrics_handlers(
    references: Sequence[str],
    cfg: Mapping[str, str],
    roots: Sequence[Path],
    *,
    option: str = OPTION,
) -> tuple[NamedHandler, ...]:
    """Load and construct each handler with those keys of `cfg` that its constructor takes.

    All are looked at before the first is constructed, so that a wrong key starts nothing.
    """
    found = [resolve(reference, option=option, roots=roots) for reference in references]
    for each in found:
        check_class(each, MetricHandler)
    _refuse_keys_that_nobody_takes(cfg, found)
    return tuple(NamedHandler(each.subject.reference, _construct(each, cfg)) for each in found)


class MetricsFanOut(MetricHandler):
    """Hands every metric to every handler, each through a bounded queue and a thread of its own."""

    def __init__(
        self,
        handlers: Sequence[NamedHandler],
        *,
        recorder: Recorder | None = None,
        stderr: TextIO | None = None,
        queue_length: int = QUEUE_LENGTH,
    ) -> None:
        self._lanes = [
            _Lane(handler, _Reporter(recorder, stderr), queue_length) for handler in handlers
        ]

    def emit(self, metric_data: MetricData) -> None:
        """Put the metric into each queue and return; where one is full its oldest goes."""
        for lane in self._lanes:
            lane.put(metric_data)

    def close(self, deadline: float = 5.0) -> int:
        """Deliver what is queued within `deadline` seconds for all; how many metrics were lost.

        Metrics that come later are ignored. Safe to call again.
        """
        end = time.monotonic() + deadline
        for lane in self._lanes:
            lane.finish()
        return sum(lane.join(end) for lane in self._lanes)


def install(fan_out: MetricHandler) -> Callable[[], None]:
    """Make `fan_out` torch's handler, for the agent's group and all others; returns the undo."""
    default = metrics.getStream("a group that nobody configures").handler
    agents = metrics.getStream(AGENT_GROUP).handler
    metrics.configure(fan_out)
    metrics.configure(fan_out, AGENT_GROUP)

    def undo() -> None:
        metrics.configure(default)
        metrics.configure(agents, AGENT_GROUP)

    return undo


class _Lane:
    """One handler: its queue, its thread and what became of its metrics."""

    def __init__(self, named: NamedHandler, reporter: "_Reporter", queue_length: int) -> None:
        self._name = named.reference
        self._handler = named.handler
        self._reporter = reporter
        self._queue: deque[MetricData] = deque(maxlen=queue_length)
        self._changed = threading.Condition()
        self._closing = False
        self._in_hand = 0
        self._lost = 0
        self._thread = threading.Thread(
            # A daemon: a handler that blocks for ever must not keep the launcher alive.
            target=self._deliver,
            name=f"metrics-{named.reference}",
            daemon=True,
        )
        self._thread.start()

    def put(self, data: MetricData) -> None:
        with self._changed:
            if self._closing:
                return
            full = len(self._queue) == self._queue.maxlen
            self._lost += full
            self._queue.append(data)
            self._changed.notify()
        if full:
            self._reporter.once(
                "metrics_dropped",
                f"metrics handler {self._name} is too slow: of {self._queue.maxlen} metrics that "
                "wait for it the oldest are dropped",
                handler=self._name,
                queue_length=self._queue.maxlen,
            )

    def finish(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self, end: float) -> int:
        """Wait for the thread until `end`; the number of metrics that the handler never got."""
        self._thread.join(max(0.0, end - time.monotonic()))
        with self._changed:
            self._lost += len(self._queue)
            lost = self._lost + self._in_hand
            self._queue.clear()
        if lost:
            self._reporter.once(
                "metrics_undelivered",
                f"metrics handler {self._name} did not get {lost} metrics",
                handler=self._name,
                count=lost,
            )
        return lost

    def _deliver(self) -> None:
        while True:
            with self._changed:
                self._in_hand = 0
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                data = self._queue.popleft()
                self._in_hand = 1
            try:
                self._handler.emit(data)
            except BaseException as error:  # noqa: BLE001 - the boundary to the user's handler
                self._reporter.once(
                    "metrics_handler_failed",
                    f"metrics handler {self._name} raised {describe(error)}{user_frame(error)}; "
                    "the job goes on",
                    handler=self._name,
                    error=describe(error),
                )


class _Reporter:
    """Says each kind of trouble with one handler once: an event, and a line on stderr."""

    def __init__(self, recorder: Recorder | None, stderr: TextIO | None) -> None:
        self._recorder = recorder
        self._stderr = stderr
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def once(self, kind: str, sentence: str, **data: object) -> None:
        with self._lock:
            if kind in self._said:
                return
            self._said.add(kind)
        # Neither a full disk nor a closed stderr may end the thread or reach the agent's call.
        with suppress(Exception):
            if self._recorder is not None:
                self._recorder(kind, **data)
        with suppress(Exception):
            print(f"dlrover-run: {sentence}", file=self._stderr or sys.stderr, flush=True)


def _refuse_keys_that_nobody_takes(cfg: Mapping[str, str], found: Sequence[Found]) -> None:
    takers = {each.subject.reference: TakenKeys(each.value) for each in found}
    for key in cfg:
        if any(taken.takes(key) for taken in takers.values()):
            continue
        known = "; ".join(f"{reference} takes {taken}" for reference, taken in takers.items())
        raise ConfigError(
            f"--metrics_cfg: no metrics handler takes the key {key!r}",
            setting="metrics_cfg",
            hint=known or "name a handler with --metrics_handler",
        )


def _construct(found: Found, cfg: Mapping[str, str]) -> MetricHandler:
    taken = TakenKeys(found.value)
    arguments = taken.arguments(cfg)
    lacking = ",".join(f"{name}=…" for name in taken.lacking(arguments))
    handler: MetricHandler = construct(
        found, kwargs=arguments, hint=f"give --metrics_cfg={lacking}" if lacking else None
    )
    return handler
