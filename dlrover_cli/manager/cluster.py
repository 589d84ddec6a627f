"""An engine as the manager needs it: which nodes there are, and an agent's process on one."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Post = Callable[[object], None]
Explain = Callable[[signal.Signals, Post], None]
"""What a signal means on a platform: posts ClusterLost soon, whatever happens; must not block."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine that agents may run on."""

    id: str
    """What the engine calls it; another one after a replacement, or the same."""
    hostname: str
    address: str
    """Where other nodes reach it."""
    resources: Mapping[str, float] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    """What the engine tells about it, for extensions."""
    reason: str = ""
    """Why it is to be replaced, if it is."""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """All nodes that are healthy now."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """The process of an agent is gone; None if nobody knows how it ended."""

    agent: str
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class AgentUnseen:
    """The engine has lost sight of an agent; its process may live on, and train in secret."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterLost:
    """The engine itself cannot be reached any more, or wants the job to end."""

    reason: str
    exit_code: int
    signum: signal.Signals | None = None
    """The signal that it is about, if it is the manager who was told to end."""
    goes_on: bool = False
    """Whether the engine starts the job again: the run is not over."""


class Cluster(Protocol):
    """Posts NodesChanged, AgentEnded, AgentUnseen and ClusterLost.

    None of its methods waits for an agent.
    """

    def open(self, post: Post) -> None:
        """Begin to post. The nodes of now come first. Raises DlroverError."""
        ...

    def start(
        self, node: Node, agent: str, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        """Start an agent's process. One that cannot be started has ended."""
        ...

    def stop(self, agent: str) -> None:
        """Ask an agent to end in good order."""
        ...

    def kill(self, agent: str) -> None:
        """End an agent and all that it started, as far as the engine can reach it."""
        ...

    def close(self) -> None:
        """End what is left and let go of the engine."""
        ...
