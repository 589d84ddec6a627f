"""Metrics to the user's handlers, each in a thread of its own, so that none can hold up the agent.

`MetricsFanOut` is the one handler that torch sees, and `install` tells torch about it. Ours are
metrics of torch's with labels.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from torch.distributed.elastic.metrics import api as metrics
from torch.distributed.elastic.metrics.api import MetricData, MetricHandler

from dlrover_cli.contracts.metrics import GROUP
from dlrover_cli.plugins.construct import accepts
from dlrover_cli.plugins.faults import describe, user_frame
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.instruments import Instrument
from dlrover_cli.telemetry.measurements import Reading
from dlrover_cli.telemetry.metrics_loading import NamedHandler

AGENT_GROUP = "torchelastic"
QUEUE_LENGTH = 4096


class LabelledMetric(MetricData):
    """One of ours: a metric as torch has them, which knows what it measures, and where."""

    instrument: Instrument
    labels: Mapping[str, str]
    is_last: bool
    is_past: bool

    @classmethod
    def of(cls, reading: Reading) -> "LabelledMetric":
        metric = cls(reading.time, GROUP, reading.instrument.name, reading.value)
        metric.instrument = reading.instrument
        metric.labels = reading.labels
        metric.is_last, metric.is_past = reading.is_last, reading.is_past
        return metric


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
        elif self._thread.is_alive():
            self._reporter.once(
                "metrics_handler_stuck",
                f"metrics handler {self._name} does not end, and is left behind",
                handler=self._name,
            )
        return lost

    def _deliver(self) -> None:
        while True:
            with self._changed:
                self._in_hand = 0
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    break
                data = self._queue.popleft()
                self._in_hand = 1
            self._fenced(self._handler.emit, data)
        close = getattr(self._handler, "close", None)
        if callable(close) and accepts(close):
            self._fenced(close)

    def _fenced(self, call: Callable[..., object], *args: object) -> None:
        try:
            call(*args)
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
