"""Metrics reach every handler, and no handler reaches the agent."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.metrics import api as metrics
from torch.distributed.elastic.metrics.api import MetricData, MetricHandler

from dlrover_cli.errors import ConfigError, PluginError
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.telemetry.metrics import MetricsFanOut, install
from dlrover_cli.telemetry.metrics_loading import NamedHandler, load_metrics_handlers
from tests.harness.waiting import eventually
from tests.plugins.user_code import UserCode, forgetting_imports


def metric(value: int) -> MetricData:
    return MetricData(0.0, "torchelastic", "speed", value)


class Keeps(MetricHandler):
    def __init__(self) -> None:
        self.values: list[int] = []
        self.threads: set[str] = set()

    def emit(self, metric_data: MetricData) -> None:
        self.values.append(metric_data.value)
        self.threads.add(threading.current_thread().name)


class Blocks(Keeps):
    """Waits in each emit until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def emit(self, metric_data: MetricData) -> None:
        self.entered.set()
        self.gate.wait()
        super().emit(metric_data)


class Raises(MetricHandler):
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def emit(self, metric_data: MetricData) -> None:
        self.calls += 1
        raise self.error


class Harness:
    """Fan-outs with everything they say; ended after the test."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stderr = io.StringIO()
        self._made: list[MetricsFanOut] = []
        self._gates: list[Blocks] = []

    def fan_out(self, *handlers: MetricHandler, queue_length: int = 1024) -> MetricsFanOut:
        named = [NamedHandler(f"m::H{index}", handler) for index, handler in enumerate(handlers)]
        fan_out = MetricsFanOut(
            named, recorder=self.record, stderr=self.stderr, queue_length=queue_length
        )
        self._made.append(fan_out)
        self._gates += [handler for handler in handlers if isinstance(handler, Blocks)]
        return fan_out

    def record(self, kind: str, **data: Any) -> None:
        self.events.append((kind, data))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def end(self) -> None:
        for handler in self._gates:
            handler.gate.set()
        for fan_out in self._made:
            fan_out.close(10)
        eventually(lambda: not metrics_threads(), what="the end of all metrics threads")


def metrics_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("metrics-")]


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.end()


class TestDelivery:
    def test_every_handler_gets_every_metric_in_order(self, harness: Harness) -> None:
        handlers = [Keeps(), Keeps()]
        fan_out = harness.fan_out(*handlers)
        for value in range(100):
            fan_out.emit(metric(value))
        assert fan_out.close(10) == 0
        assert [handler.values for handler in handlers] == [list(range(100))] * 2
        assert harness.events == []
        assert harness.stderr.getvalue() == ""

    def test_each_handler_has_a_daemon_thread_with_its_name(self, harness: Harness) -> None:
        handlers = [Keeps(), Keeps()]
        fan_out = harness.fan_out(*handlers)
        fan_out.emit(metric(1))
        threads = [t for t in threading.enumerate() if t.name.startswith("metrics-")]
        assert sorted(thread.name for thread in threads) == ["metrics-m::H0", "metrics-m::H1"]
        assert all(thread.daemon for thread in threads)
        fan_out.close(10)
        assert handlers[1].threads == {"metrics-m::H1"}
        assert metrics_threads() == []

    def test_without_handlers_nothing_happens(self, harness: Harness) -> None:
        fan_out = harness.fan_out()
        fan_out.emit(metric(1))
        assert fan_out.close(10) == 0

    def test_what_comes_after_the_close_is_ignored(self, harness: Harness) -> None:
        handler = Keeps()
        fan_out = harness.fan_out(handler)
        assert fan_out.close(10) == 0
        fan_out.emit(metric(1))
        assert fan_out.close(10) == 0
        assert handler.values == []

    def test_many_threads_may_emit_at_once(self, harness: Harness) -> None:
        handler = Keeps()
        fan_out = harness.fan_out(handler)
        threads = [
            threading.Thread(target=lambda: [fan_out.emit(metric(v)) for v in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fan_out.close(10)
        assert sorted(handler.values) == sorted(list(range(50)) * 4)


class TestAHandlerThatRaises:
    @pytest.mark.parametrize(
        "error", [ValueError("no such host"), SystemExit(3), KeyboardInterrupt()]
    )
    def test_the_caller_does_not_notice_and_it_is_said_once(
        self, harness: Harness, error: BaseException
    ) -> None:
        raising, keeping = Raises(error), Keeps()
        fan_out = harness.fan_out(raising, keeping)
        for value in range(3):
            fan_out.emit(metric(value))
        assert fan_out.close(10) == 0
        assert raising.calls == 3
        assert keeping.values == [0, 1, 2]
        assert harness.kinds == ["metrics_handler_failed"]
        assert harness.events[0][1]["handler"] == "m::H0"
        assert harness.stderr.getvalue().count("\n") == 1

    def test_the_line_says_which_handler_and_where(self, harness: Harness) -> None:
        fan_out = harness.fan_out(Raises(ValueError("no such host")))
        fan_out.emit(metric(1))
        fan_out.close(10)
        line = harness.stderr.getvalue()
        assert line.startswith("dlrover-run: metrics handler m::H0 raised ValueError: no such host")
        assert f"(at {__file__}:" in line

    def test_two_handlers_are_each_said_once(self, harness: Harness) -> None:
        fan_out = harness.fan_out(Raises(ValueError()), Raises(ValueError()))
        fan_out.emit(metric(1))
        fan_out.close(10)
        assert sorted(data["handler"] for _, data in harness.events) == ["m::H0", "m::H1"]

    def test_a_recorder_that_raises_does_not_stop_the_delivery(self, harness: Harness) -> None:
        def full_disk(kind: str, **data: Any) -> None:
            raise OSError("no space left on device")

        raising = Raises(ValueError())
        fan_out = MetricsFanOut(
            [NamedHandler("m::H", raising)], recorder=full_disk, stderr=harness.stderr
        )
        fan_out.emit(metric(1))
        fan_out.emit(metric(2))
        assert fan_out.close(10) == 0
        assert raising.calls == 2
        assert "raised ValueError" in harness.stderr.getvalue()


class TestAHandlerThatBlocks:
    def test_the_caller_and_the_other_handlers_go_on(self, harness: Harness) -> None:
        blocking, keeping = Blocks(), Keeps()
        fan_out = harness.fan_out(blocking, keeping)
        for value in range(20):
            fan_out.emit(metric(value))
        eventually(lambda: keeping.values == list(range(20)), what="the other handler's metrics")
        assert blocking.values == []

    def test_when_its_queue_is_full_the_oldest_are_dropped_and_that_is_said_once(
        self, harness: Harness
    ) -> None:
        blocking = Blocks()
        fan_out = harness.fan_out(blocking, queue_length=4)
        fan_out.emit(metric(0))
        assert blocking.entered.wait(10)
        for value in range(1, 11):
            fan_out.emit(metric(value))
        assert harness.kinds == ["metrics_dropped"]
        blocking.gate.set()
        assert fan_out.close(10) == 6
        assert blocking.values == [0, 7, 8, 9, 10]
        assert harness.events[-1] == ("metrics_undelivered", {"handler": "m::H0", "count": 6})

    def test_close_gives_up_at_its_deadline_and_says_how_many_are_lost(
        self, harness: Harness
    ) -> None:
        blocking, keeping = Blocks(), Keeps()
        fan_out = harness.fan_out(blocking, keeping)
        for value in range(5):
            fan_out.emit(metric(value))
        assert blocking.entered.wait(10)
        eventually(lambda: len(keeping.values) == 5, what="the other handler's metrics")
        started = time.monotonic()
        assert fan_out.close(0.2) == 5
        assert time.monotonic() - started < 5
        assert keeping.values == [0, 1, 2, 3, 4]
        assert "metrics handler m::H0 did not get 5 metrics" in harness.stderr.getvalue()

    def test_one_that_does_not_end_is_left_behind_and_named(self, harness: Harness) -> None:
        gate = threading.Event()
        keeping = Keeps()
        keeping.close = gate.wait  # type: ignore[attr-defined]
        fan_out = harness.fan_out(keeping)
        fan_out.emit(metric(1))
        eventually(lambda: keeping.values == [1], what="the metric")
        assert fan_out.close(0.2) == 0
        gate.set()
        assert harness.kinds == ["metrics_handler_stuck"]
        assert "m::H0 does not end, and is left behind" in harness.stderr.getvalue()

    def test_all_that_block_share_the_deadline(self, harness: Harness) -> None:
        handlers = [Blocks() for _ in range(5)]
        fan_out = harness.fan_out(*handlers)
        fan_out.emit(metric(1))
        for handler in handlers:
            assert handler.entered.wait(10)
        started = time.monotonic()
        assert fan_out.close(0.6) == 5
        assert time.monotonic() - started < 5 * 0.6

    def test_after_the_close_it_gets_no_more_than_what_it_had_in_hand(
        self, harness: Harness
    ) -> None:
        blocking = Blocks()
        fan_out = harness.fan_out(blocking)
        for value in range(5):
            fan_out.emit(metric(value))
        assert blocking.entered.wait(10)
        fan_out.close(0)
        blocking.gate.set()
        eventually(lambda: not metrics_threads(), what="the end of the thread")
        assert blocking.values == [0]

    def test_a_handler_that_emits_metrics_itself_does_not_deadlock(self, harness: Harness) -> None:
        class Echoes(MetricHandler):
            def emit(self, metric_data: MetricData) -> None:
                if metric_data.value < 3:
                    fan_out.emit(metric(metric_data.value + 1))
                seen.append(metric_data.value)

        seen: list[int] = []
        fan_out = harness.fan_out(Echoes())
        fan_out.emit(metric(0))
        eventually(lambda: seen == [0, 1, 2, 3], what="the echoes")


class TestInstalling:
    def test_torchs_metrics_reach_the_fan_out_until_it_is_undone(self, harness: Harness) -> None:
        nothing = metrics.NullMetricHandler()
        agents, default, ours = Keeps(), Keeps(), Keeps()
        metrics.configure(agents, "torchelastic")
        metrics.configure(default)
        try:
            fan_out = harness.fan_out(ours)
            undo = install(fan_out)
            metrics.put_metric("agent", 1)
            metrics.put_metric("user", 2, "a group of the user's")
            undo()
            metrics.put_metric("agent", 3)
            metrics.put_metric("user", 4, "a group of the user's")
        finally:
            metrics.configure(nothing, "torchelastic")
            metrics.configure(nothing)
        fan_out.close(10)
        assert ours.values == [1, 2]
        assert agents.values == [3]
        assert default.values == [4]


HANDLERS = """
    import torchelastic.metrics as metrics

    class Plain(metrics.MetricHandler):
        def emit(self, metric_data): pass

    class Named(Plain):
        def __init__(self, url, retries="3"): self.got = (url, retries)

    class Whole(Plain):
        def __init__(self, config): self.got = config

    class Refuses(Plain):
        def __init__(self, **kwargs): raise ValueError(f"bad {kwargs}")

    class Abstract(metrics.MetricHandler): pass

    class Unrelated: pass
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`load("Class", …, key="value") -> handlers`, from a module that is there."""
    with forgetting_imports(tmp_path):
        user = UserCode(tmp_path)
        user.write("mymetrics.py", HANDLERS)

        def load(*names: str, **cfg: str) -> list[Any]:
            references = [f"mymetrics::{name}" for name in names]
            loaded = load_metrics_handlers(references, cfg, user.roots)
            assert [named.reference for named in loaded] == references
            return [named.handler for named in loaded]

        yield load


class TestLoading:
    def test_none_is_none(self, load: Callable[..., Any]) -> None:
        assert load() == []

    def test_the_same_class_twice_is_two_handlers(self, load: Callable[..., Any]) -> None:
        first, second = load("Plain", "Plain")
        assert first is not second

    def test_each_constructor_gets_the_keys_it_takes(self, load: Callable[..., Any]) -> None:
        named, whole, _ = load("Named", "Whole", "Plain", url="http://x", colour="red")
        assert named.got == ("http://x", "3")
        assert whole.got == {"url": "http://x", "colour": "red"}

    def test_a_key_that_nobody_takes_is_refused_with_those_that_are_taken(
        self, load: Callable[..., Any]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            load("Named", "Plain", url="x", ulr="y")
        assert "'ulr'" in caught.value.message
        assert caught.value.setting == "metrics_cfg"
        assert caught.value.hint == (
            "mymetrics::Named takes url, retries; mymetrics::Plain takes none"
        )

    def test_keys_without_a_handler_are_refused(self, load: Callable[..., Any]) -> None:
        with pytest.raises(ConfigError) as caught:
            load(url="x")
        assert "--metrics_handler" in (caught.value.hint or "")

    @pytest.mark.parametrize(
        "name,reason,words",
        [
            ("Named", PluginFault.WRONG_SIGNATURE, "takes (url, retries='3')"),
            ("Refuses", PluginFault.CONSTRUCTOR_RAISED, "ValueError: bad {}"),
            ("Abstract", PluginFault.ABSTRACT_METHODS, "emit"),
            ("Unrelated", PluginFault.WRONG_BASE, "MetricHandler"),
            ("Gone", PluginFault.NO_ATTRIBUTE, "no 'Gone'"),
        ],
    )
    def test_what_cannot_be_used_is_refused(
        self, load: Callable[..., Any], name: str, reason: PluginFault, words: str
    ) -> None:
        with pytest.raises(PluginError) as caught:
            load("Plain", name)
        assert caught.value.reason is reason, caught.value.message
        assert words in caught.value.message
        assert caught.value.message.startswith(f"--metrics_handler=mymetrics::{name}: ")

    def test_a_key_that_is_needed_is_asked_for(self, load: Callable[..., Any]) -> None:
        with pytest.raises(PluginError) as caught:
            load("Named")
        assert caught.value.hint == "give --metrics_cfg=url=…"
