"""``--metrics_handler=otel``: metrics for an OpenTelemetry collector, over OTLP and HTTP.

The board is sent as it is every ``interval`` seconds and at the end. All sums are totals since the
start, so that one that did not arrive is made up for by the next. The messages are those of
OpenTelemetry's own package; they go through our client, which keeps its deadlines.
"""

import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from dlrover_cli.contracts.metrics import MetricHandler, MetricsContext
from dlrover_cli.errors import ConfigError
from dlrover_cli.services.address import ServiceAddress, parse_address
from dlrover_cli.services.client import ServiceClient, ServiceOptions
from dlrover_cli.services.faults import ServiceFailed
from dlrover_cli.telemetry.handlers.board import Board, Histogram, Labels, Seen
from dlrover_cli.telemetry.handlers.keys import missing_package, seconds
from dlrover_cli.telemetry.instruments import BUCKETS, INSTRUMENTS, Instrument, Sort

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
SERVICE = "OTEL_SERVICE_NAME"
_PATH = "v1/metrics"
_SECONDS = 3.0
_OF_THE_RESOURCE = ("run_id", "host")


class OtelHandler(MetricHandler):
    """Keeps a board, and sends it."""

    def __init__(self, endpoint: str = "", interval: str = "10") -> None:
        _check_extra()
        self._client = ServiceClient(
            ServiceOptions(_address(endpoint), _SECONDS, accepts=range(200, 300), has_breaker=False)
        )
        self._headers = {
            **_headers(os.environ.get(HEADERS, "")),
            "Content-Type": "application/x-protobuf",
            "Accept": "application/x-protobuf",
        }
        self._interval = seconds("interval", interval, least=1.0)
        self._board = Board()
        self._context: MetricsContext | None = None
        self._began = time.time_ns()
        self._sent_at: float | None = None
        self._is_said = False

    def start(self, context: MetricsContext) -> None:
        self._context = context

    def emit(self, metric_data: Any) -> None:
        now = metric_data.timestamp
        if self._sent_at is None:
            self._sent_at = now
        elif now - self._sent_at >= self._interval:
            self._sent_at = now
            self._send()  # before half of a new sample is on the board
        self._board.put(metric_data)

    def close(self) -> None:
        self._send()
        self._client.close()

    def _send(self) -> None:
        seen = self._board.seen()
        if not seen.common and not seen.others:
            return
        request = message_of(seen, self._began, time.time_ns())
        try:
            self._client.post(_PATH, request.SerializeToString(), self._headers)
        except ServiceFailed as error:
            if self._context is not None and not self._is_said:
                self._is_said = True
                self._context.say(f"metrics: {error.message}; the next try has all of it")


def message_of(seen: Seen, began: int, now: int) -> Any:
    """The request that an OTLP collector gets; times are nanoseconds since 1970."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    about = {
        "service.name": os.environ.get(SERVICE) or "dlrover-run",
        "host.name": seen.common.get("host", ""),
        "dlrover.run_id": seen.common.get("run_id", ""),
    }
    _describe(resource.resource.attributes, about)
    scope = resource.scope_metrics.add()
    scope.scope.name = "dlrover_cli"
    writer = _Writer(scope.metrics, _without_resource(seen.common), began, now)
    for instrument in INSTRUMENTS:
        if instrument.sort is Sort.HISTOGRAM:
            writer.histograms(instrument, seen.histograms.get(instrument, {}))
        else:
            writer.numbers(instrument, seen.values.get(instrument, {}))
    writer.others(seen.others)
    return request


def name_of(instrument: Instrument) -> tuple[str, str]:
    """Name and unit in OpenTelemetry's way: the unit is no part of the name."""
    stem = instrument.name.removesuffix("_total")
    for suffix, unit in (("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")):
        if stem.endswith(suffix):
            return f"dlrover.{stem.removesuffix(suffix)}", unit
    return f"dlrover.{stem}", ""


class _Writer:
    """Adds metrics to a message."""

    def __init__(self, metrics: Any, common: Mapping[str, str], began: int, now: int) -> None:
        self._metrics, self._common = metrics, common
        self._began, self._now = began, now

    def numbers(self, instrument: Instrument, values: Mapping[Labels, float]) -> None:
        if not values:
            return
        metric = self._metric(instrument)
        is_sum = instrument.sort is Sort.COUNTER
        if is_sum:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = _CUMULATIVE
        points = metric.sum.data_points if is_sum else metric.gauge.data_points
        for own, value in values.items():
            self._point(points, dict(zip(instrument.labels, own, strict=True))).as_double = value

    def histograms(self, instrument: Instrument, values: Mapping[Labels, Histogram]) -> None:
        if not values:
            return
        histogram = self._metric(instrument).histogram
        histogram.aggregation_temporality = _CUMULATIVE
        for own, each in values.items():
            labels = dict(zip(instrument.labels, own, strict=True))
            point = self._point(histogram.data_points, labels)
            point.count, point.sum = each.count, each.total
            point.explicit_bounds.extend(BUCKETS)
            point.bucket_counts.extend(each.counts)

    def others(self, values: Mapping[tuple[str, str], float]) -> None:
        if not values:
            return
        metric = self._metrics.add()
        metric.name = "dlrover.other_metric"
        for (group, name), value in values.items():
            point = self._point(metric.gauge.data_points, {"group": group, "metric": name})
            point.as_double = value

    def _metric(self, instrument: Instrument) -> Any:
        metric = self._metrics.add()
        metric.name, metric.unit = name_of(instrument)
        metric.description = instrument.about
        return metric

    def _point(self, points: Any, labels: Mapping[str, str]) -> Any:
        point = points.add()
        point.start_time_unix_nano, point.time_unix_nano = self._began, self._now
        _describe(point.attributes, {**self._common, **labels})
        return point


_CUMULATIVE = 2
"""OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE."""


def _check_extra() -> None:
    try:
        import opentelemetry.proto.metrics.v1.metrics_pb2  # noqa: F401
    except ImportError:
        raise missing_package("otel", "opentelemetry-proto") from None


def _address(endpoint: str) -> ServiceAddress:
    url = endpoint or os.environ.get(ENDPOINT) or DEFAULT_ENDPOINT
    try:
        return parse_address(url)
    except ValueError as error:
        raise ConfigError(
            f"--metrics_handler=otel: {error}",
            setting="metrics_cfg",
            hint=f"--metrics_cfg=endpoint={DEFAULT_ENDPOINT}",
        ) from None


def _headers(text: str) -> dict[str, str]:
    """`key=value,key=value` as OpenTelemetry has it; keys of collectors come this way."""
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {key.strip(): unquote(value.strip()) for key, _, value in pairs}


def _without_resource(common: Mapping[str, str]) -> dict[str, str]:
    return {name: label for name, label in common.items() if name not in _OF_THE_RESOURCE}


def _describe(attributes: Any, labels: Mapping[str, str]) -> None:
    for name, label in labels.items():
        attribute = attributes.add()
        attribute.key, attribute.value.string_value = name, label
