"""Who is asked for new nodes in the place of lost ones; the answer arrives as an observation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlrover_cli.manager.cluster import Node, Post


@dataclass(frozen=True, slots=True)
class Relaunched:
    """What became of a request: the ids of the nodes that were really relaunched."""

    asked: tuple[str, ...]
    relaunched: tuple[str, ...]
    problem: str = ""
    """Why it is not all that was asked for, in words."""


class Replacer(Protocol):
    """Asked once per lost node; must not block."""

    def ask(self, nodes: Sequence[Node], post: Post) -> None:
        """Have these nodes replaced, and post Relaunched, whatever happens."""
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...


class NoReplacer:
    """Nobody is there who could: requests are ignored."""

    def ask(self, nodes: Sequence[Node], post: Post) -> None:
        post(Relaunched(tuple(node.id for node in nodes), (), "no extension replaces nodes"))

    def close(self) -> None:
        """Nothing is under way."""
