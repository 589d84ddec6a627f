"""What a scheduling session knows: jobs of tasks, nodes and queues, as values that never change.

A task is one agent of a job; a node is one machine that agents run on. The session works on these
values and makes new ones; plugins look at them. Resources are amounts by name in base units:
``cpu`` in cores, ``memory`` in bytes, all else in pieces.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Resources = Mapping[str, float]

AGENTS = "agents"
"""The resource that every task uses one of: a queue's capacity that is a plain number counts it."""


class TaskStatus(StrEnum):
    """How far a task has come."""

    PENDING = "pending"
    ALLOCATED = "allocated"
    """It has a node in this session; its process is not started yet."""
    RUNNING = "running"
    RELEASING = "releasing"
    """It was told to end and still holds its node."""


class JobPhase(StrEnum):
    """How far a job has come."""

    PENDING = "pending"
    ENQUEUED = "enqueued"
    """It was let into its queue and waits for nodes."""
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class TaskView:
    """One agent of a job."""

    namespace: str
    name: str
    uid: str
    job: str
    """The uid of its job."""
    resources: Resources = field(default_factory=dict)
    node: str | None = None
    status: TaskStatus = TaskStatus.PENDING
    priority: int = 0
    """That of its job."""
    place: str = field(default="", compare=False)
    """Names its hold on the node for as long as it lasts: what is told twice can be known by it."""

    @property
    def holds_node(self) -> bool:
        return self.node is not None

    @property
    def charge(self) -> Resources:
        """What it takes of its queue's capacity."""
        return {**self.resources, AGENTS: 1.0}


@dataclass(frozen=True, slots=True)
class JobView:
    """One job: a gang of tasks of which ``min_available`` start together or none does."""

    uid: str
    name: str
    namespace: str
    queue: str
    priority: int = 0
    min_available: int = 1
    tasks: tuple[TaskView, ...] = ()
    phase: JobPhase = JobPhase.PENDING
    submitted: float = 0.0
    """Seconds since the epoch; of two jobs alike the older one goes first."""
    gained: int = 0
    """The priority that it has gained by waiting; what it had when it started, once it runs."""
    is_owed_room: bool = False
    """Whether another job was ended so that this one can start."""

    @property
    def standing(self) -> int:
        """What it counts among those of its queue: its priority, and what waiting has added."""
        return self.priority + self.gained

    @property
    def placed(self) -> tuple[TaskView, ...]:
        """Those of its tasks that hold a node."""
        return tuple(task for task in self.tasks if task.holds_node)

    @property
    def waiting(self) -> tuple[TaskView, ...]:
        return tuple(task for task in self.tasks if not task.holds_node)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One machine that agents run on."""

    name: str
    allocatable: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def idle(self) -> Resources:
        """What is left of each resource that the node has."""
        return {name: total - self.used.get(name, 0.0) for name, total in self.allocatable.items()}


@dataclass(frozen=True, slots=True)
class QueueView:
    """What jobs of one kind share."""

    name: str
    weight: int = 1
    capacity: Resources = field(default_factory=dict)
    """What its running tasks may hold together; what is not named has no limit."""
    reclaimable: bool = True
    """Whether other queues may take back what it holds."""
    allocated: Resources = field(default_factory=dict)
    """What its tasks hold now, in the same names."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """All that a session begins with."""

    uid: str
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()


def add(*amounts: Resources) -> dict[str, float]:
    """The sum, name by name."""
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def subtract(amounts: Resources, taken: Resources) -> dict[str, float]:
    """What is left, name by name; a name that comes to nothing is gone."""
    left = add(amounts, {name: -amount for name, amount in taken.items()})
    return {name: amount for name, amount in left.items() if amount}


def charges(tasks: Iterable[TaskView]) -> dict[str, float]:
    """What these take of their queues."""
    return add(*(task.charge for task in tasks))
