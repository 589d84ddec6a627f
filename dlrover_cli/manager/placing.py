"""On which nodes agents are started next. Pure: what is known in, nodes out."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from dlrover_cli.manager.cluster import Node


@dataclass(frozen=True, slots=True)
class Demand:
    """How many nodes a job may have, and what each has to offer."""

    min_nodes: int
    max_nodes: int
    resources: Mapping[str, float]


def usable(nodes: Sequence[Node], demand: Demand, excluded: Set[str]) -> list[Node]:
    """Those that may be used at all, in the engine's order."""
    return [node for node in nodes if node.id not in excluded and fits(node, demand.resources)]


def fits(node: Node, wanted: Mapping[str, float]) -> bool:
    return all(node.resources.get(name, 0.0) >= amount for name, amount in wanted.items())


def to_place(
    nodes: Sequence[Node],
    demand: Demand,
    excluded: Set[str],
    occupied: Set[str],
    doubtful: Set[str] = frozenset(),
) -> list[Node]:
    """Where to start agents now.

    A job does not start before its minimum can be had at once. Once it runs, each node that comes
    is taken, up to the maximum; what is left over is a spare. The doubtful ones come last: an
    agent was lost there, and the engine may be about to notice that the node is too.
    """
    free = [node for node in usable(nodes, demand, excluded) if node.id not in occupied]
    free.sort(key=lambda node: node.id in doubtful)
    room = demand.max_nodes - len(occupied)
    if not occupied and len(free) < demand.min_nodes:
        return []
    return free[: max(0, room)]


def missing(nodes: Sequence[Node], demand: Demand, excluded: Set[str]) -> str:
    """Why a job cannot start, in words."""
    there = len(usable(nodes, demand, excluded))
    wanted = ", ".join(f"{name}={amount:g}" for name, amount in demand.resources.items())
    with_what = f" with {wanted}" if wanted else ""
    out = f"; {len(excluded)} excluded" if excluded else ""
    return f"{there} of {demand.min_nodes} nodes{with_what} can be had{out}"
