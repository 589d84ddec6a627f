"""The board: what every instrument of this node shows now, for whoever comes to look.

One thread writes on it; any number read.
"""

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlrover_cli.contracts.metrics import GROUP
from dlrover_cli.telemetry.instruments import BUCKETS, Instrument, Sort

Labels = tuple[str, ...]
"""The values of an instrument's own labels, in its order."""

MOST_OTHERS = 1000
"""Names of metrics of other groups that are kept; a script may make up as many as it likes."""


@dataclass(slots=True)
class Histogram:
    """How many observations fell into each bucket; the last one has no upper bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Seen:
    """A copy of the board at one moment."""

    common: Mapping[str, str]
    values: Mapping[Instrument, Mapping[Labels, float]]
    histograms: Mapping[Instrument, Mapping[Labels, Histogram]]
    others: Mapping[tuple[str, str], float]
    """The last value of each metric that is not ours, by group and name."""


class Board:
    """Takes metrics, and shows the latest of each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._common: dict[str, str] = {}
        self._values: dict[Instrument, dict[Labels, float]] = {}
        self._histograms: dict[Instrument, dict[Labels, Histogram]] = {}
        self._others: dict[tuple[str, str], float] = {}

    def put(self, metric: Any) -> None:
        """Take one metric, of ours or of anybody's; what is no number is left out."""
        instrument = getattr(metric, "instrument", None)
        with self._lock:
            if metric.group_name == GROUP and isinstance(instrument, Instrument):
                self._put_ours(instrument, metric)
                return
            key = (str(metric.group_name), str(metric.name))
            is_new = key not in self._others
            if isinstance(metric.value, int | float) and not (
                is_new and len(self._others) >= MOST_OTHERS
            ):
                self._others[key] = float(metric.value)

    def seen(self) -> Seen:
        """What is on it now."""
        with self._lock:
            return Seen(
                dict(self._common),
                {key: dict(values) for key, values in self._values.items()},
                {
                    key: {
                        labels: Histogram(list(each.counts), each.total)
                        for labels, each in values.items()
                    }
                    for key, values in self._histograms.items()
                },
                dict(self._others),
            )

    def _put_ours(self, instrument: Instrument, metric: Any) -> None:
        own = tuple(metric.labels.get(name, "") for name in instrument.labels)
        self._common = {
            name: label for name, label in metric.labels.items() if name not in instrument.labels
        }
        if metric.is_last:
            self._forget_rank(metric.labels["rank"])
        elif instrument.sort is Sort.HISTOGRAM:
            values = self._histograms.setdefault(instrument, {})
            values.setdefault(own, Histogram()).observe(metric.value)
        else:
            self._values.setdefault(instrument, {})[own] = float(metric.value)

    def _forget_rank(self, rank: str) -> None:
        for instrument, values in self._values.items():
            if instrument.labels == ("rank",):
                values.pop((rank,), None)
