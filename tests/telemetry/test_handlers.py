"""The handlers that come with the launcher, fed with a recorded life."""

import json
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families
from torch.distributed.elastic.metrics.api import MetricData

from dlrover_cli.contracts.metrics import MetricHandler, MetricsContext
from dlrover_cli.errors import ConfigError, PluginError
from dlrover_cli.telemetry import metrics_loading
from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.handlers import prometheus
from dlrover_cli.telemetry.handlers.console import ConsoleHandler
from dlrover_cli.telemetry.handlers.jsonl import JsonlHandler
from dlrover_cli.telemetry.handlers.otel import OtelHandler, name_of
from dlrover_cli.telemetry.handlers.prometheus import PrometheusHandler
from dlrover_cli.telemetry.instruments import INSTRUMENTS
from dlrover_cli.telemetry.live import NodeSample
from dlrover_cli.telemetry.measurements import Measurements
from dlrover_cli.telemetry.metrics import LabelledMetric
from dlrover_cli.telemetry.metrics_loading import (
    NamedHandler,
    load_metrics_handlers,
    start_metrics_handlers,
)
from tests.harness.waiting import eventually
from tests.services.servers import answer, serving
from tests.telemetry.recorded import RUN_ID, Journal, sample

TORCHS = MetricData(1.0, "torchelastic", "workers.default.failed", 1)


class Run:
    """What a handler sees of a run."""

    def __init__(self, directory: Path) -> None:
        self.said: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.context = MetricsContext(
            RUN_ID, "vm", "default", directory, self._record, self.said.append
        )
        self._measurements = Measurements(RUN_ID, "vm", "default")

    def _record(self, kind: str, **data: Any) -> None:
        self.events.append((kind, data))

    def feed(self, handler: MetricHandler, *observed: Event | NodeSample) -> None:
        for each in observed:
            readings = (
                self._measurements.of_sample(each)
                if isinstance(each, NodeSample)
                else self._measurements.of_event(each)
            )
            for reading in readings:
                handler.emit(LabelledMetric.of(reading))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


class TestMetrics:
    def test_a_labelled_metric_is_a_metric_of_torch(self, run: Run) -> None:
        measurements = Measurements(RUN_ID, "vm", "default")
        [*_, reading] = measurements.of_event(Journal().started(1, 0)[0])
        metric = LabelledMetric.of(reading)
        timestamp, group, name, value = metric
        assert isinstance(metric, MetricData)
        assert (timestamp, group, name, value) == (1, "dlrover", reading.instrument.name, 0)
        assert metric.labels["run_id"] == RUN_ID


class TestNames:
    def test_the_built_in_ones_are_loaded_by_name(self) -> None:
        cfg = {"interval": "5"}
        loaded = load_metrics_handlers(["console", "jsonl", "otel", "prometheus"], cfg, [])
        assert [each.reference for each in loaded] == ["console", "jsonl", "otel", "prometheus"]
        kinds = [type(each.handler) for each in loaded]
        assert kinds == [ConsoleHandler, JsonlHandler, OtelHandler, PrometheusHandler]

    def test_a_name_that_is_not_there_gets_a_suggestion_and_the_others(self) -> None:
        with pytest.raises(PluginError) as caught:
            load_metrics_handlers(["promethus"], {}, [])
        assert caught.value.message == (
            "--metrics_handler=promethus: there is no metrics handler of that name"
        )
        assert "did you mean 'prometheus'?" in (caught.value.hint or "")
        assert "console, jsonl" in (caught.value.hint or "")

    @pytest.mark.parametrize(
        "name, key, value, words",
        [
            ("console", "interval", "often", "interval takes seconds, at least 1, not 'often'"),
            ("prometheus", "port", "-1", "port takes a port from 0 to 65535, not '-1'"),
            ("prometheus", "textfile", "/tmp/x", "textfile takes a name that ends in .prom"),
        ],
    )
    def test_a_bad_value_is_one_sentence(self, name: str, key: str, value: str, words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_metrics_handlers([name], {key: value}, [])
        assert caught.value.message.startswith(f"--metrics_cfg: {words}")
        assert caught.value.setting == "metrics_cfg"

    @pytest.mark.parametrize(
        "name, module, package",
        [
            ("prometheus", "prometheus_client", "prometheus_client"),
            ("otel", "opentelemetry.proto.metrics.v1.metrics_pb2", "opentelemetry-proto"),
        ],
    )
    def test_without_the_extra_the_sentence_has_the_line_to_type(
        self, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError) as caught:
            load_metrics_handlers([name], {}, [])
        assert f"needs the package {package}," in caught.value.message
        assert caught.value.hint == f"pip install 'dlrover-cli[{name}]'"

    def test_if_one_cannot_start_those_before_it_are_ended(self, run: Run) -> None:
        handlers = load_metrics_handlers(["prometheus", "jsonl"], {"path": "/no/such/f"}, [])
        with pytest.raises(ConfigError, match="cannot write to /no/such/f"):
            start_metrics_handlers(handlers, run.context)
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(run.events[0][1]["url"])

    def test_one_that_takes_long_to_start_is_named(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics_loading, "_SILENCE_SECONDS", 0.05)

        class Slow(ConsoleHandler):
            def start(self, context: MetricsContext) -> None:
                eventually(lambda: run.said, what="that it is waited for")

        start_metrics_handlers([NamedHandler("m::Slow", Slow())], run.context)
        assert run.said == [
            "metrics handler m::Slow is still starting; the job begins when it is done"
        ]


class TestConsole:
    def test_it_says_a_line_every_interval_and_one_at_the_end(self, run: Run) -> None:
        journal, handler = Journal(), ConsoleHandler(interval="3")
        handler.start(run.context)
        run.feed(handler, journal.event(0, "run_started"), *journal.started(1, 0))
        for second in range(2, 6):
            run.feed(handler, sample(second, 0, 10 * second))
        [line] = run.said
        assert line == (
            "metrics: attempt 0, 2 of 2 workers running (3.0 cores, 2 MB), 30 steps at 4/s, "
            "goodput 67%"
        )
        run.feed(handler, *journal.failed(6), *journal.started(8, 1))
        handler.close()
        assert run.said[-1].startswith("metrics: attempt 1, 2 of 2 workers running")
        assert run.said[-1].endswith("goodput 62%, 1 restart (2.0s on average)")

    def test_it_has_nothing_to_say_of_torchs_metrics(self, run: Run) -> None:
        handler = ConsoleHandler()
        handler.start(run.context)
        handler.emit(TORCHS)
        handler.close()
        assert run.said == []


class TestJsonl:
    def lines(self, path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_each_line_is_a_metric(self, run: Run, tmp_path: Path) -> None:
        handler = JsonlHandler()
        handler.start(run.context)
        handler.emit(TORCHS)
        run.feed(handler, *Journal().life())
        handler.close()
        first, *rest = self.lines(tmp_path / "metrics.jsonl")
        assert first == {
            "time": 1.0,
            "group": "torchelastic",
            "name": "workers.default.failed",
            "value": 1,
            "labels": {},
        }
        [recovery] = [line for line in rest if line["name"] == "recovery_seconds"]
        assert recovery["value"] == 2
        assert recovery["labels"]["kind"] == "restart_workers"

    def test_what_is_sampled_is_written_seldom_and_at_the_end(
        self, run: Run, tmp_path: Path
    ) -> None:
        path = tmp_path / "mine.jsonl"
        handler = JsonlHandler(path=str(path), interval="10")
        handler.start(run.context)
        run.feed(handler, *Journal().started(0, 0), *(sample(t, 0, t) for t in range(1, 26)))
        handler.close()
        steps = [
            line["value"]
            for line in self.lines(path)
            if line["name"] == "worker_steps_total" and line["labels"]["rank"] == "0"
        ]
        assert steps == [1, 11, 21, 25]

    def test_a_full_disk_costs_lines_and_is_said_once(self, run: Run) -> None:
        handler = JsonlHandler(path="/dev/full")
        handler.start(run.context)
        handler.emit(TORCHS)
        handler.emit(TORCHS)
        handler.close()
        first, last = run.said
        assert "No space left on device" in first
        assert last == "metrics: 2 lines could not be written"


@pytest.fixture
def endpoint(run: Run) -> Iterator[tuple[PrometheusHandler, str]]:
    handler = PrometheusHandler(port="0")
    handler.start(run.context)
    yield handler, run.events[0][1]["url"]
    handler.close()


def scrape(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Any], name: str, **labels: str) -> float:
    for family in families.values():
        for each in family.samples:
            if each.name == name and labels.items() <= each.labels.items():
                return float(each.value)
    raise AssertionError(f"there is no {name} with {labels}")


class TestOtel:
    def test_a_collector_gets_the_board_at_the_end(self, run: Run) -> None:
        with serving(answer(b"", keep=True)) as server:
            handler = OtelHandler(endpoint=server.url)
            handler.start(run.context)
            journal = Journal()
            handler.emit(TORCHS)
            run.feed(handler, *journal.started(1, 0), sample(2, 0, 7), *journal.failed(3))
            run.feed(handler, *journal.started(5, 1))
            handler.close()
            [request] = server.requests
        assert request.path == "/v1/metrics"
        assert request.headers["content-type"] == "application/x-protobuf"
        [resource] = ExportMetricsServiceRequest.FromString(request.body).resource_metrics
        about = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert about == {
            "service.name": "dlrover-run",
            "host.name": "vm",
            "dlrover.run_id": RUN_ID,
        }
        metrics = {each.name: each for each in resource.scope_metrics[0].metrics}
        [recovery] = metrics["dlrover.recovery"].histogram.data_points
        assert (metrics["dlrover.recovery"].unit, recovery.sum, recovery.count) == ("s", 2, 1)
        assert sum(recovery.bucket_counts) == 1
        assert len(recovery.bucket_counts) == len(recovery.explicit_bounds) + 1
        steps = metrics["dlrover.worker_steps"].sum
        assert steps.is_monotonic
        assert [point.as_double for point in steps.data_points] == [7, 7]
        labels = {each.key: each.value.string_value for each in steps.data_points[1].attributes}
        assert labels == {"node": "0", "role": "default", "rank": "1"}
        assert metrics["dlrover.other_metric"].gauge.data_points[0].as_double == 1

    def test_it_sends_every_interval_with_the_headers_of_the_environment(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
        with serving(answer(b"", "202 Accepted", keep=True)) as server:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{server.url}/otlp")
            handler = OtelHandler(interval="5")
            handler.start(run.context)
            run.feed(handler, *Journal().started(0, 0), *(sample(t, 0, t) for t in range(1, 12)))
            assert len(server.requests) == 2
            handler.close()
            assert {each.headers["api-key"] for each in server.requests} == {"a b"}
            assert {each.path for each in server.requests} == {"/otlp/v1/metrics"}
        assert run.said == []

    def test_a_collector_that_is_not_there_is_said_once(self, run: Run) -> None:
        handler = OtelHandler(endpoint="http://127.0.0.1:1", interval="1")
        handler.start(run.context)
        run.feed(handler, *Journal().life())
        handler.close()
        [line] = run.said
        assert line.startswith("metrics: http://127.0.0.1:1/v1/metrics refused the connection")

    def test_names_become_those_of_prometheus_again(self) -> None:
        units = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "": ""}
        for instrument in INSTRUMENTS:
            name, unit = name_of(instrument)
            again = name.replace(".", "_") + units[unit]
            assert f"dlrover_{instrument.name}".removesuffix("_total") == again


class TestPrometheus:
    def test_a_life_can_be_scraped(self, run: Run, endpoint: tuple[PrometheusHandler, str]) -> None:
        handler, url = endpoint
        journal = Journal()
        *events, end = journal.life()
        handler.emit(TORCHS)
        run.feed(handler, *events[:3], sample(2, 0, 7), *events[3:], end)
        families = scrape(url)
        assert value(families, "dlrover_restarts_total", kind="restart_workers", node="0") == 1
        assert value(families, "dlrover_recovery_seconds_sum", kind="restart_workers") == 2
        assert value(families, "dlrover_recovery_seconds_bucket", le="1.0") == 0
        assert value(families, "dlrover_recovery_seconds_bucket", le="2.5") == 1
        assert value(families, "dlrover_rendezvous_seconds_count", run_id=RUN_ID) == 2
        assert value(families, "dlrover_goodput_ratio", host="vm") == pytest.approx(17 / 20)
        assert value(families, "dlrover_worker_steps_total", rank="1") == 7
        assert value(families, "dlrover_other_metric", metric=TORCHS.name) == 1
        # Everything that is declared is there, under its name.
        names = {sample.name for family in families.values() for sample in family.samples}
        for instrument in INSTRUMENTS:
            stem = f"dlrover_{instrument.name}"
            assert names & {stem, f"{stem}_count"}, instrument

    def test_the_url_is_said_and_recorded(
        self, run: Run, endpoint: tuple[PrometheusHandler, str]
    ) -> None:
        _, url = endpoint
        assert url.startswith("http://127.0.0.1:")
        assert run.said == [f"metrics: {url}"]
        assert run.events == [("metrics_endpoint", {"handler": "prometheus", "url": url})]

    def test_it_ends_with_its_threads(self, run: Run) -> None:
        handler = PrometheusHandler(port="0")
        handler.start(run.context)
        url = run.events[0][1]["url"]
        scrape(url)
        handler.close()
        assert "metrics-endpoint" not in {each.name for each in threading.enumerate()}
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(url)

    def test_several_launchers_take_one_port_after_the_other(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = PrometheusHandler(port="0"), PrometheusHandler()
        first.start(run.context)
        taken = int(run.events[0][1]["url"].split(":")[2].split("/")[0])
        monkeypatch.setattr(second, "_ports", range(taken, min(taken + 32, 65536)))
        try:
            second.start(run.context)
            assert run.events[1][1]["url"] != run.events[0][1]["url"]
        finally:
            first.close()
            second.close()

    def test_a_port_that_was_asked_for_and_is_taken_is_refused(
        self, run: Run, endpoint: tuple[PrometheusHandler, str]
    ) -> None:
        port = endpoint[1].split(":")[2].split("/")[0]
        with pytest.raises(ConfigError) as caught:
            PrometheusHandler(port=port).start(run.context)
        assert caught.value.message.endswith(f"127.0.0.1, port {port}: Address already in use")
        assert "port=0" in (caught.value.hint or "")

    def test_the_end_stays_in_the_text_file_which_others_may_read(
        self, run: Run, tmp_path: Path
    ) -> None:
        path = tmp_path / "run.prom"
        handler = PrometheusHandler(port="0", textfile=str(path))
        handler.start(run.context)
        run.feed(handler, *Journal().life())
        handler.close()
        families = {each.name: each for each in text_string_to_metric_families(path.read_text())}
        assert value(families, "dlrover_exit_code") == 0
        assert value(families, "dlrover_restarts_total", kind="restart_workers") == 1
        assert os.stat(path).st_mode & 0o777 == 0o644
        assert [each.name for each in tmp_path.iterdir()] == ["run.prom"]

    def test_a_text_file_that_cannot_be_written_is_said_once(self, run: Run) -> None:
        handler = PrometheusHandler(port="0", textfile="/no/such/folder/run.prom", interval="1")
        handler.start(run.context)
        run.feed(handler, *Journal().life())
        handler.close()
        [_, line] = run.said
        assert line == (
            "metrics: cannot write /no/such/folder/run.prom: No such file or directory; "
            "going on without"
        )

    def test_a_rank_that_has_moved_away_is_not_shown_any_more(
        self, run: Run, endpoint: tuple[PrometheusHandler, str]
    ) -> None:
        handler, url = endpoint
        journal = Journal()
        run.feed(handler, *journal.started(1, 0), sample(2, 0, 7), *journal.failed(3))
        run.feed(handler, *journal.started(4, 1, range(1)))
        ranks = {each.labels["rank"] for each in scrape(url)["dlrover_worker_up"].samples}
        assert ranks == {"0"}

    def test_scripts_cannot_fill_the_memory_with_names(
        self, run: Run, endpoint: tuple[PrometheusHandler, str]
    ) -> None:
        handler, url = endpoint
        for number in range(1100):
            handler.emit(MetricData(0, "mine", f"metric {number}", number))
        handler.emit(MetricData(0, "mine", "words", "a text"))
        assert len(scrape(url)[prometheus.OTHERS].samples) == 1000
