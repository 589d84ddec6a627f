"""Who replaces a node: the extension point of the job's manager, as DLRover's guide has it.

Registered through the entry point group `dlrover.unified.extension`, or with
`ManagerExtension.register_extension` as a decorator. All extensions become one object: its class
derives from every one of them, so extra methods are there too, and `super()` leads to the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, TypeVar

_Extension = TypeVar("_Extension", bound="type[ManagerExtension]")


@dataclass(frozen=True)
class NodeInfo:
    """One node, as the platform knows it: DLRover's fields first, then ours."""

    id: str
    hostname: str | None = None
    ip_address: str | None = None
    envs: dict[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """Why it is to be replaced."""


class Ground(StrEnum):
    """What an engine's nodes are made of."""

    KUBERNETES = "kubernetes"
    MACHINES = "machines"
    UNKNOWN = "unknown"


class EngineMode(StrEnum):
    """Whether the engine is there for this job alone."""

    JOB = "job"
    CLUSTER = "cluster"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Deployment:
    """How the engine is deployed, as far as can be known."""

    engine: str = "local"
    ground: Ground = Ground.UNKNOWN
    mode: EngineMode = EngineMode.UNKNOWN
    facts: Mapping[str, str] = field(default_factory=dict)
    """What that was read from, such as the names of a cluster and its namespace."""


class ManagerView(Protocol):
    """What an extension may know about the job that it serves."""

    @property
    def run_id(self) -> str: ...
    @property
    def deployment(self) -> Deployment: ...
    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The healthy nodes of the engine, as of now."""
        ...


class ManagerExtension:
    """Override what the platform can do; what is not overridden is ignored by the manager."""

    manager: ManagerView
    """The manager that asks; set after construction, before the first call."""

    _registered: ClassVar[list[type["ManagerExtension"]]] = []

    async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
        """Replace ``nodes``; return those that really were. By default none is.

        May be `async` or not. It runs beside the manager's loop and has a deadline; what it raises,
        or returns that is no list of the nodes it was given, counts as not replaced.
        """
        return []

    @classmethod
    def register_extension(cls, extension: _Extension) -> _Extension:
        """Register a subclass; usable as a decorator."""
        if extension not in cls._registered:
            cls._registered.append(extension)
        return extension

    @classmethod
    def extensions(cls) -> list[type["ManagerExtension"]]:
        """The registered subclasses, in the order of their registration."""
        return list(cls._registered)
