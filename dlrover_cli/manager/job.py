"""One job for its manager: what was asked for, how it may end, and who reaches its agents."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dlrover_cli.failover.decide import Counters
from dlrover_cli.leash.wire import LeashAddress
from dlrover_cli.manager.cluster import Explain, Node
from dlrover_cli.manager.placing import Demand


class Leashes(Protocol):
    """The manager's end of all leashes."""

    def address_for(self, agent: str, node: str) -> LeashAddress: ...
    def send(self, agent: str, kind: str, /, **data: Any) -> bool: ...
    def broadcast(self, kind: str, /, *, but: str = "", **data: Any) -> None: ...


class MakeCommand(Protocol):
    """How an agent is started."""

    def __call__(
        self, agent: str, node: Node, leash: LeashAddress, counters: Counters | None
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The arguments and the environment of its process; counting goes on, if it has begun."""
        ...


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """What the user has said about the job as a whole. Times are in seconds."""

    demand: Demand
    max_node_relaunches: int = 3
    node_timeout: float = 600.0
    """How long the job waits for enough nodes."""
    end_together: float = 45.0
    """How long agents have to end after the first one has."""
    lease: float = 5.0
    relaunches: int = 0
    """How many nodes were replaced before, if the run goes on in another manager."""
    explain: Explain | None = None
    """Who knows what a signal means; without it the launcher was told to end."""
    more_signals: tuple[signal.Signals, ...] = ()
    """Signals of the platform that `explain` knows."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How the job ended."""

    exit_code: int
    reason: str
    signum: int | None = None
    """The signal that ended the manager, and with it the job."""
    goes_on: bool = False
    """Whether the engine starts the job again: the run is not over."""


@dataclass(frozen=True, slots=True)
class AbortJob:
    """Somebody wants the job to end. Agents that are there hear of it at the same time."""

    reason: str
