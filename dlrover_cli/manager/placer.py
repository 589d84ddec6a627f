"""Who is asked where agents may run; the answer arrives as an observation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dlrover_cli.manager.cluster import Node, Post


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of the nodes when agents are to be placed."""

    nodes: tuple[Node, ...]
    excluded: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    """Nodes that have lost an agent: to be used last."""
    again: frozenset[str] = frozenset()
    """Tasks whose places are given back and looked for again, where they were if possible."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where agents may be started: by the names of their tasks, the ids of nodes."""

    places: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    """Why there are not more."""
    again: frozenset[str] = frozenset()
    """The tasks that have lost their places, as was asked for."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By the ids of nodes that are refused, why."""


class Placer(Protocol):
    """Must not block."""

    def ask(self, question: Question, post: Post) -> None:
        """Find places for the agents that the job lacks, and post Placed, whatever happens."""
        ...

    def ended(self, task: str) -> None:
        """A place is free: its agent is gone, or was never started."""
        ...

    def close(self) -> None:
        """Give back all places. Returns when everybody was told."""
        ...
