"""What a race gives: the samples of each contender in each figure, and whether they are enough."""

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import metadata

from benchmarks.figures import Figure, Unit

FAILURES_BEFORE_GIVING_UP = 2
LOSSES_BEFORE_GIVING_UP = 3  # of runs that did not recover: each takes as long as a run may


class Verdict(Enum):
    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of one contender in one figure that a reader compares."""

    median: float
    p95: float
    max: float


@dataclass(slots=True)
class Lane:
    """One contender's results in one figure."""

    launcher: str
    samples: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    is_raced: bool = True

    def summary(self) -> Summary | None:
        if not self.samples:
            return None
        median = statistics.median(self.samples)
        return Summary(median, percentile(self.samples, 0.95), max(self.samples))


@dataclass(slots=True)
class Result:
    """All lanes of one figure: ratios refer to the first one, the limit is for the second one."""

    figure: Figure
    lanes: list[Lane]
    out_of_time: bool = False

    def is_over_for(self, lane: Lane) -> bool:
        losses = lane.samples.count(0.0) if self.figure.unit is Unit.RECOVERED else 0
        return (
            not lane.is_raced
            or len(lane.failures) >= FAILURES_BEFORE_GIVING_UP
            or losses >= LOSSES_BEFORE_GIVING_UP
        )

    def ratio(self, lane: Lane) -> float | None:
        """The ratio of its median to the first lane's."""
        first, own = self.lanes[0].summary(), lane.summary()
        if self.figure.unit is Unit.RECOVERED or not first or not own or not first.median:
            return None
        return own.median / first.median

    def verdict(self) -> Verdict | None:
        """Whether the second contender kept the limit; None where there is no limit."""
        if len(self.lanes) < 2:
            return None
        judged = self.lanes[1]
        if self.figure.unit is Unit.RECOVERED:
            if not judged.samples and not judged.failures:
                return Verdict.NOT_MEASURED
            return _verdict(bool(judged.samples) and all(judged.samples) and not judged.failures)
        if self.figure.limit is None:
            return None
        ratio = self.ratio(judged)
        if ratio is None:
            return Verdict.NOT_MEASURED
        return _verdict(ratio <= self.figure.limit.ratio)


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of the values does not exceed."""
    return sorted(values)[math.ceil(fraction * len(values)) - 1]


def surroundings() -> dict[str, str]:
    """What a reader needs to know about where the numbers come from."""
    return {
        "torch": metadata.version("torch"),
        "Python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _verdict(is_met: bool) -> Verdict:
    return Verdict.MET if is_met else Verdict.MISSED
