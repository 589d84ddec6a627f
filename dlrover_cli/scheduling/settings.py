"""What a person sets about scheduling: extenders, queues, and which phases a session has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.services.address import ServiceAddress

DEFAULT_TIMEOUT = 1.0
"""Seconds; as in Volcano."""


class Action(StrEnum):
    """One phase of a session."""

    RECLAIM = "reclaim"
    ALLOCATE = "allocate"
    BACKFILL = "backfill"
    PREEMPT = "preempt"


DEFAULT_AGING = 600.0
"""Seconds of waiting that are worth one point of priority."""
DEFAULT_ACTIONS = (Action.ALLOCATE, Action.BACKFILL)


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """One service and what it is asked."""

    address: ServiceAddress
    verbs: Mapping[Verb, str]
    """The path of each hook that is turned on, below the address."""
    http_timeout: float = DEFAULT_TIMEOUT
    """Seconds that a whole exchange may take."""
    ignorable: bool = False
    managed_resources: frozenset[str] = frozenset()
    """If there are any, only tasks that ask for one of them are its concern."""
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"extender {self.address}"

    def manages(self, resources: Mapping[str, float]) -> bool:
        """Whether a task that asks for these is its concern; an amount of 0 asks, too."""
        return not self.managed_resources or not self.managed_resources.isdisjoint(resources)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue may hold, and how it stands to others."""

    capacity: Mapping[str, float] = field(default_factory=dict)
    """By resource; `agents` counts agents. What is not named has no limit."""
    weight: int = 1
    reclaimable: bool = True
    aging: float | None = DEFAULT_AGING
    """How many seconds a job waits until it counts one priority higher; None for never."""


@dataclass(frozen=True, slots=True)
class SchedulingConfig:
    """All that an extender file says."""

    actions: tuple[Action, ...] = DEFAULT_ACTIONS
    extenders: tuple[ExtenderSettings, ...] = ()
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    """Plugins of Volcano that the file names and that mean nothing here."""
