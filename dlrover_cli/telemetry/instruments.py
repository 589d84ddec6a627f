"""What the launcher measures about a run: each name, what it counts, and in which unit.

Names follow the rules of Prometheus, where each gets the prefix ``dlrover_``. Every metric has the
labels of `COMMON` and those of its instrument.
"""

from dataclasses import dataclass
from enum import Enum

COMMON = ("run_id", "node", "host", "role")
"""Labels of every metric. ``node`` is the node's rank, and empty before the nodes have met."""


class Sort(Enum):
    """How the values of an instrument follow each other."""

    COUNTER = "counter"
    """Each value is the total so far: one that is missed is made up for by the next."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Each value is one observation."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One thing that is measured."""

    name: str
    sort: Sort
    about: str
    labels: tuple[str, ...] = ()
    is_sampled: bool = False
    """Whether it comes about once a second, rather than when something happens."""


FAILURES = Instrument(
    "failures_total",
    Sort.COUNTER,
    "Failures that began on this node, by how the cause showed itself.",
    ("kind",),
)
RESTARTS = Instrument(
    "restarts_total",
    Sort.COUNTER,
    "Decisions after which workers start again, by what is done.",
    ("kind",),
)
RECOVERY = Instrument(
    "recovery_seconds",
    Sort.HISTOGRAM,
    "From the first sign of a failure until all workers of this node run again.",
    ("kind",),
)
RENDEZVOUS = Instrument(
    "rendezvous_seconds", Sort.HISTOGRAM, "How long the nodes took to come together."
)
GOODPUT = Instrument(
    "goodput_ratio",
    Sort.GAUGE,
    "Share of the time so far in which all workers of this node ran.",
    is_sampled=True,
)
USEFUL = Instrument(
    "useful_seconds_total",
    Sort.COUNTER,
    "Time in which all workers of this node ran.",
    is_sampled=True,
)
ELAPSED = Instrument(
    "elapsed_seconds_total", Sort.COUNTER, "Time since the run began.", is_sampled=True
)
ATTEMPT = Instrument("attempt", Sort.GAUGE, "How often workers were started again so far.")
RESTART_COUNT = Instrument(
    "restart_count", Sort.GAUGE, "Failures that count against --max-restarts."
)
GENERATION = Instrument("generation", Sort.GAUGE, "Fresh starts of the whole job so far.")
WORLD_SIZE = Instrument("world_size", Sort.GAUGE, "Workers of the job.")
NODES = Instrument("nodes", Sort.GAUGE, "Nodes of the job.")
EXIT_CODE = Instrument("exit_code", Sort.GAUGE, "What the launcher exits with; set at the end.")
WORKER_UP = Instrument("worker_up", Sort.GAUGE, "Whether the worker runs.", ("rank",))
WORKER_STEPS = Instrument(
    "worker_steps_total",
    Sort.COUNTER,
    "Optimizer steps or beats of a rank, over all attempts on this node.",
    ("rank",),
    is_sampled=True,
)
WORKER_STEP_RATE = Instrument(
    "worker_steps_per_second", Sort.GAUGE, "Steps per second.", ("rank",), is_sampled=True
)
WORKER_CPU = Instrument(
    "worker_cpu_cores",
    Sort.GAUGE,
    "Cores that the worker's process keeps busy.",
    ("rank",),
    is_sampled=True,
)
WORKER_MEMORY = Instrument(
    "worker_memory_bytes",
    Sort.GAUGE,
    "Resident memory of the worker's process.",
    ("rank",),
    is_sampled=True,
)
WORKER_MOVED = Instrument(
    "worker_last_moved_timestamp_seconds",
    Sort.GAUGE,
    "When the worker last took a step, beat or wrote something.",
    ("rank",),
    is_sampled=True,
)

INSTRUMENTS = (
    *(FAILURES, RESTARTS, RECOVERY, RENDEZVOUS),
    *(GOODPUT, USEFUL, ELAPSED),
    *(ATTEMPT, RESTART_COUNT, GENERATION, WORLD_SIZE, NODES, EXIT_CODE),
    *(WORKER_UP, WORKER_STEPS, WORKER_STEP_RATE, WORKER_CPU, WORKER_MEMORY, WORKER_MOVED),
)

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histograms, in seconds."""
