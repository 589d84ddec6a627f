"""A meter: events and samples in, metrics out to the handlers, in a thread of its own.

Whoever records an event holds the journal's lock: here it only gets into a queue.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.live import NodeSample
from dlrover_cli.telemetry.measurements import Measurements, Reading

QUEUE_LENGTH = 4096


class Meter:
    """Measures one node from its events and samples until it is closed."""

    def __init__(
        self,
        measurements: Measurements,
        emit: Callable[[Reading], None],
        past: Iterable[Event] = (),
    ) -> None:
        """``past`` are the events so far, some of them perhaps of a process before this one."""
        self._measurements = measurements
        self._emit = emit
        for event in past:
            with suppress(KeyError, TypeError, ValueError):  # a file that anybody can edit
                for reading in measurements.of_event(event):
                    emit(replace(reading, is_past=True))
        # More than will ever wait; what is counted is counted in what comes later, too.
        self._queue: deque[Event | NodeSample] = deque(maxlen=QUEUE_LENGTH)
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._measure, name="metrics-meter", daemon=True)
        self._thread.start()

    def put(self, what: Event | NodeSample) -> None:
        """Take an event or a sample, and return at once."""
        with self._changed:
            if not self._closing:
                self._queue.append(what)
                self._changed.notify()

    def close(self, deadline: float) -> None:
        """Measure what is there yet, within so many seconds, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(deadline)

    def _measure(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                what = self._queue.popleft()
            with suppress(KeyError, TypeError, ValueError):  # an event of another version
                readings = (
                    self._measurements.of_sample(what)
                    if isinstance(what, NodeSample)
                    else self._measurements.of_event(what)
                )
                for reading in readings:
                    self._emit(reading)
