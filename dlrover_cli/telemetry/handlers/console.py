"""``--metrics_handler=console``: how the run goes, in one line on stderr every now and then."""

from typing import Any

from dlrover_cli.contracts.metrics import MetricHandler, MetricsContext
from dlrover_cli.telemetry import instruments as known
from dlrover_cli.telemetry.handlers.board import Board, Seen
from dlrover_cli.telemetry.handlers.keys import seconds
from dlrover_cli.telemetry.instruments import Instrument
from dlrover_cli.words import counted, span


class ConsoleHandler(MetricHandler):
    """Says a line at most every ``interval`` seconds, and one at the end."""

    def __init__(self, interval: str = "10") -> None:
        self._interval = seconds("interval", interval, least=1.0)
        self._board = Board()
        self._said_at: float | None = None
        self._context: MetricsContext | None = None

    def start(self, context: MetricsContext) -> None:
        self._context = context

    def emit(self, metric_data: Any) -> None:
        now = metric_data.timestamp
        if self._said_at is None:
            self._said_at = now  # nothing is known yet that is worth a line
        elif now - self._said_at >= self._interval:
            self._said_at = now
            self._say()  # before half of a new sample is on the board
        self._board.put(metric_data)

    def close(self) -> None:
        self._say()

    def _say(self) -> None:
        line = summary(self._board.seen())
        if self._context is not None and line:
            self._context.say(f"metrics: {line}")


def summary(seen: Seen) -> str:
    """What the board shows, in one line; empty if it is."""
    return ", ".join(
        filter(None, (_attempt(seen), _workers(seen), _speed(seen), _goodput(seen), _trouble(seen)))
    )


def _attempt(seen: Seen) -> str:
    attempt = seen.values.get(known.ATTEMPT, {}).get(())
    return "" if attempt is None else f"attempt {attempt:.0f}"


def _workers(seen: Seen) -> str:
    up = seen.values.get(known.WORKER_UP, {})
    if not up:
        return ""
    running = sum(value > 0 for value in up.values())
    parts = [f"{running} of {counted(len(up), 'worker')} running"]
    cpu, memory = _sum(seen, known.WORKER_CPU), _sum(seen, known.WORKER_MEMORY)
    if running and cpu is not None and memory is not None:
        parts.append(f"{cpu:.1f} cores, {_bytes(memory)}")
    return f"{parts[0]} ({parts[1]})" if len(parts) == 2 else parts[0]


def _speed(seen: Seen) -> str:
    """Of the slowest rank, for which the others wait; and how far it is."""
    steps = seen.values.get(known.WORKER_STEPS, {})
    if not steps or not any(steps.values()):
        return ""
    least = f"{min(steps.values()):.0f} steps"
    rates = [rate for rate in seen.values.get(known.WORKER_STEP_RATE, {}).values() if rate > 0]
    return f"{least} at {min(rates):.3g}/s" if rates else least


def _goodput(seen: Seen) -> str:
    ratio = seen.values.get(known.GOODPUT, {}).get(())
    return "" if ratio is None else f"goodput {ratio:.0%}"


def _trouble(seen: Seen) -> str:
    restarts = _sum(seen, known.RESTARTS)
    if not restarts:
        return ""
    recoveries = seen.histograms.get(known.RECOVERY, {}).values()
    count = sum(each.count for each in recoveries)
    told = counted(int(restarts), "restart")
    if not count:
        return told
    return f"{told} ({span(sum(each.total for each in recoveries) / count)} on average)"


def _bytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def _sum(seen: Seen, instrument: Instrument) -> float | None:
    values = seen.values.get(instrument)
    return None if not values else sum(values.values())
