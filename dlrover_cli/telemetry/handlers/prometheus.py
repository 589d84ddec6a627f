"""``--metrics_handler=prometheus``: a `/metrics` endpoint for as long as the run lives.

It is on 127.0.0.1 unless told otherwise. Several launchers on one machine take one port after the
other, from `FIRST_PORT` on. What is there at the end stays in ``textfile``, where node_exporter
finds it: no scraper comes in time for a short run.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_cli.contracts.metrics import MetricHandler, MetricsContext
from dlrover_cli.errors import ConfigError
from dlrover_cli.telemetry.handlers.board import Board, Histogram, Labels, Seen
from dlrover_cli.telemetry.handlers.keys import missing_package, port, seconds, wrong
from dlrover_cli.telemetry.instruments import BUCKETS, INSTRUMENTS, Instrument, Sort
from dlrover_cli.telemetry.whole_writes import replacing

if TYPE_CHECKING:
    from dlrover_cli.telemetry.handlers.endpoint import Endpoint

FIRST_PORT = 9464
PORTS = 32
PREFIX = "dlrover_"
OTHERS = "dlrover_other_metric"


class PrometheusHandler(MetricHandler):
    """Keeps a board, and serves it to whoever asks."""

    def __init__(
        self, host: str = "127.0.0.1", port: str = "", textfile: str = "", interval: str = "10"
    ) -> None:
        _check_extra()
        self._host = host
        self._ports = _ports(port)
        self._textfile = _TextFile(textfile, interval)
        self._board = Board()
        self._endpoint: Endpoint | None = None
        self._context: MetricsContext | None = None

    def start(self, context: MetricsContext) -> None:
        self._context = context
        self._endpoint = _listen(self._host, self._ports, self._board)
        url = f"{self._endpoint.url}/metrics"
        context.record("metrics_endpoint", handler="prometheus", url=url)
        context.say(f"metrics: {url}")

    def emit(self, metric_data: Any) -> None:
        self._board.put(metric_data)
        if self._textfile.is_due(metric_data.timestamp) and self._board.seen().common.get("node"):
            self._write_textfile()

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
        if self._textfile.path is not None:
            self._write_textfile()

    def _write_textfile(self) -> None:
        from prometheus_client import generate_latest

        problem = self._textfile.write(generate_latest(_registry(self._board)))
        if problem is not None and self._context is not None:
            self._context.say(f"metrics: {problem}")


class _TextFile:
    """The same text in a file, replaced as a whole, every now and then and at the end."""

    def __init__(self, path: str, interval: str) -> None:
        if path and not path.endswith(".prom"):
            example = "textfile=/var/lib/node_exporter/dlrover.prom"
            raise wrong("textfile", f"takes a name that ends in .prom, not {path!r}", example)
        self.path = Path(path).expanduser() if path else None
        self._interval = seconds("interval", interval, least=1.0)
        self._written_at: float | None = None
        self._is_said = False

    def is_due(self, now: float) -> bool:
        if self.path is None:
            return False
        if self._written_at is not None and now - self._written_at < self._interval:
            return False
        self._written_at = now
        return True

    def write(self, text: bytes) -> str | None:
        """Write it; the first time that this fails, why."""
        assert self.path is not None
        try:
            with replacing(self.path) as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)  # node_exporter is another user
        except OSError as error:
            if self._is_said:
                return None
            self._is_said = True
            return f"cannot write {self.path}: {error.strerror}; going on without"
        return None


def _check_extra() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise missing_package("prometheus", "prometheus_client") from None


def _ports(text: str) -> range:
    """Those to try, in their order."""
    if not text:
        return range(FIRST_PORT, FIRST_PORT + PORTS)
    number = port("port", text)
    return range(number, number + 1)


def _listen(host: str, ports: range, board: Board) -> "Endpoint":
    """On the first port that is free; ConfigError if none is."""
    from prometheus_client import make_wsgi_app

    from dlrover_cli.telemetry.handlers.endpoint import Endpoint

    app = make_wsgi_app(_registry(board))
    problem: OSError | None = None
    for number in ports:
        try:
            return Endpoint(host, number, app)
        except OSError as error:
            problem = error
            if not _is_taken(error):
                break
    assert problem is not None
    which = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise ConfigError(
        f"--metrics_handler=prometheus cannot listen on {host}, {which}: {problem.strerror}",
        setting="metrics_cfg",
        hint="--metrics_cfg=port=0 takes any free port, and says which"
        if _is_taken(problem)
        else "name an address of this machine: --metrics_cfg=host=127.0.0.1",
    ) from None


def _is_taken(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE


def _registry(board: Board) -> Any:
    """A registry of its own: what others measure in this process is none of ours."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(board.seen))
    return registry


class _Collector:
    """Turns the board into Prometheus' families whenever somebody looks."""

    def __init__(self, see: Callable[[], Seen]) -> None:
        self._see = see

    def describe(self) -> list[Any]:
        return []  # nobody else is in the registry

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        seen = self._see()
        for instrument in INSTRUMENTS:
            if instrument.sort is Sort.HISTOGRAM:
                values = seen.histograms.get(instrument)
                if values:
                    yield _histograms(instrument, values, seen)
            elif numbers := seen.values.get(instrument):
                yield _numbers(instrument, numbers, seen)
        if seen.others:
            about = "The last value of a metric that is not the launcher's own."
            labels = [*seen.common, "group", "metric"]
            family = GaugeMetricFamily(OTHERS, about, labels=labels)
            for (group, name), value in seen.others.items():
                family.add_metric([*seen.common.values(), group, name], value)
            yield family


def _numbers(instrument: Instrument, values: Mapping[Labels, float], seen: Seen) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    is_counter = instrument.sort is Sort.COUNTER
    make = CounterMetricFamily if is_counter else GaugeMetricFamily
    labels = [*seen.common, *instrument.labels]
    family = make(PREFIX + instrument.name, instrument.about, labels=labels)
    for own, value in values.items():
        family.add_metric([*seen.common.values(), *own], value)
    return family


def _histograms(instrument: Instrument, values: Mapping[Labels, Histogram], seen: Seen) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    labels = [*seen.common, *instrument.labels]
    family = HistogramMetricFamily(PREFIX + instrument.name, instrument.about, labels=labels)
    for own, histogram in values.items():
        counts, so_far = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
            so_far += count
            counts.append((bound, so_far))
        family.add_metric([*seen.common.values(), *own], counts, histogram.total)
    return family
