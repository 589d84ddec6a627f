"""Who is which rank: a pure function from what the nodes bring to the ranks of their workers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dlrover_cli.agent.terms import Terms
from dlrover_cli.failover.decide import Counters


@dataclass(frozen=True, slots=True)
class Hello:
    """What one agent brings into a round."""

    role: str
    local_world_size: int
    counters: Counters
    terms: Terms = field(default_factory=dict)
    check: int = 0
    """At which level it wants the nodes of the round to be checked before workers start."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        counters = Counters(**data["counters"])
        return cls(
            data["role"],
            data["local_world_size"],
            counters,
            data.get("terms", {}),
            data.get("check", 0),
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """The ranks of one node's workers: local rank 0's numbers, and how many there are in all."""

    first_global_rank: int
    world_size: int
    first_role_rank: int
    role_world_size: int


def place(hellos: Sequence[Hello]) -> list[Placement]:
    """Ranks for every node, in node order. Nodes may differ in role and in number of workers."""
    role_sizes: dict[str, int] = defaultdict(int)
    for hello in hellos:
        role_sizes[hello.role] += hello.local_world_size
    world_size = sum(role_sizes.values())
    placements = []
    next_global = 0
    next_in_role: dict[str, int] = defaultdict(int)
    for hello in hellos:
        placements.append(
            Placement(next_global, world_size, next_in_role[hello.role], role_sizes[hello.role])
        )
        next_global += hello.local_world_size
        next_in_role[hello.role] += hello.local_world_size
    return placements


def agree_on_counters(hellos: Sequence[Hello]) -> Counters:
    """The numbers of the job: those of the agents that have been in it longest."""
    return max((hello.counters for hello in hellos), key=lambda counters: counters.attempt)
