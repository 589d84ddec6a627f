"""The metrics of one run: from its events and samples to the handlers that the user named."""

import socket
from collections.abc import Sequence

from dlrover_cli.contracts.metrics import MetricsContext
from dlrover_cli.launch.session import Session
from dlrover_cli.telemetry.events import read_events
from dlrover_cli.telemetry.live import SampleListener
from dlrover_cli.telemetry.measurements import Measurements
from dlrover_cli.telemetry.metering import Meter
from dlrover_cli.telemetry.metrics import LabelledMetric, MetricsFanOut, install
from dlrover_cli.telemetry.metrics_loading import NamedHandler, start_metrics_handlers

_CLOSE_SECONDS = 5.0


def measuring(
    handlers: Sequence[NamedHandler], session: Session, role: str
) -> tuple[SampleListener, ...]:
    """Start the handlers and measure until the session ends; who wants to see samples.

    Raises PluginError or ConfigError if a handler cannot start.
    """
    if not handlers:
        return ()
    directory, host = session.run_directory, socket.gethostname()
    start_metrics_handlers(
        handlers,
        MetricsContext(
            run_id=directory.run_id,
            host=host,
            role=role,
            directory=directory.node,
            record=session.events.record,
            say=session.say,
        ),
    )
    fan_out = MetricsFanOut(handlers, recorder=session.events.record)
    undo = install(fan_out)
    meter = Meter(
        Measurements(directory.run_id, host, role),
        lambda reading: fan_out.emit(LabelledMetric.of(reading)),
        read_events(directory.events),  # the start at least, and all before it if resumed
    )

    def end(is_over: bool) -> None:
        undo()
        meter.close(_CLOSE_SECONDS)
        fan_out.close(_CLOSE_SECONDS)

    session.at_end.append(end)
    session.events.subscribe(meter.put)
    return (meter.put,)
