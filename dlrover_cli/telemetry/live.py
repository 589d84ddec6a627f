"""How far one node is at one moment, as values: what every view of a running job is made from.

The agent takes a sample about once a second; the status line, `dlrover-job top`, the metrics and
the step rates of `dlrover-job why` show the same numbers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from dlrover_cli.contracts import WorkerPhase


class RankState(StrEnum):
    """Whether a worker runs, and how it ended if it does not."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """The launcher has ended it, because of another one or because it was told to."""


@dataclass(frozen=True, slots=True)
class RankSample:
    """One worker at one moment. What is not known is None."""

    global_rank: int
    local_rank: int
    pid: int
    state: RankState
    phase: WorkerPhase
    steps: int
    steps_per_second: float | None
    """Over the last few seconds; None while nothing is known of the steps."""
    cpu_percent: float | None
    """100 is one core; of the worker's process alone. None of one that has ended."""
    memory_bytes: int | None
    """Resident memory of the worker's process. None of one that has ended."""
    last_moved: float | None
    """When it last took a step, beat or wrote something; seconds since 1970."""
    at_prompt: bool = False
    """Whether a person looks into it with a debugger."""
    at_breakpoint: bool = False
    """Whether it runs and has come to one that nobody has asked for."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    """All workers of one node at one moment."""

    time: float
    """Seconds since 1970."""
    run_id: str
    host: str
    node_rank: int
    nodes: int
    world_size: int
    attempt: int
    restart_count: int
    generation: int
    ended: bool
    """Whether this is the last sample of its attempt on this node."""
    ranks: tuple[RankSample, ...]

    @property
    def steps(self) -> int:
        """Of the worker that is furthest."""
        return max((rank.steps for rank in self.ranks), default=0)

    @property
    def steps_per_second(self) -> float | None:
        """The rate of a typical worker; None while no rate is known."""
        return usual_rate(self.ranks)


SampleListener = Callable[[NodeSample], None]
"""Gets each sample in the sampler's thread; it must return at once."""


def usual_rate(ranks: Iterable[RankSample]) -> float | None:
    """Steps per second of a typical worker among those whose rate is known."""
    from statistics import median  # with the first rate, and not at every start

    rates = [rank.steps_per_second for rank in ranks if rank.steps_per_second is not None]
    return median(rates) if rates else None
