"""When a round is complete and who has which rank in it: looks at what is known, returns an action.

One of the waiting nodes coordinates a round. It knows who has come, who was in the round before
and has neither come nor left, and who has answered when it asked. No clock and no store is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

_PATROL = 5
"""How many times the usual interval lies between two questions to nodes that seem to run well."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user has said about the rounds of a job. Times are in seconds."""

    min_nodes: int
    max_nodes: int
    join_timeout: float = 600.0
    last_call_timeout: float = 5.0
    keep_alive_interval: float = 2.0
    keep_alive_max_attempt: int = 3
    node_unit: int = 1
    """Nodes are taken in multiples of it; both bounds are such multiples."""

    def in_units(self, nodes: int) -> int:
        """How many of so many nodes can take part."""
        return nodes // self.node_unit * self.node_unit

    @property
    def lease(self) -> float:
        """How long a node may leave a question unanswered before it counts as gone."""
        return self.keep_alive_interval * self.keep_alive_max_attempt


class Standing(Enum):
    """What the coordinator thinks of a node."""

    FRESH = auto()
    STALE = auto()
    """Not heard of for a while: ask before relying on it."""
    ASKED = auto()
    SILENT = auto()
    """Has not answered when others would have; its lease runs."""
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Sighting:
    """When a node was heard of, and since when it owes an answer."""

    heard: float
    asked: float | None = None
    has_answered: bool = False

    def standing(self, now: float, rules: Rules, *, patrol: bool) -> Standing:
        """``patrol``: the node is not waited for, and need not be asked as often."""
        if self.asked is None:
            fresh_for = rules.keep_alive_interval
            if self.has_answered:
                fresh_for = rules.keep_alive_interval * _PATROL if patrol else rules.lease
            return Standing.FRESH if now - self.heard < fresh_for else Standing.STALE
        if now - self.asked < rules.keep_alive_interval:
            return Standing.ASKED
        return Standing.SILENT if now - self.asked < rules.lease else Standing.GONE


@dataclass(frozen=True, slots=True)
class Forming:
    """What the coordinator knows about a round that is not complete yet."""

    arrived: tuple[str, ...]
    """In the order of their arrival, without those that have left again."""
    previous: tuple[str, ...] = ()
    """The members of the round before, by rank."""
    left: frozenset[str] = frozenset()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)
    enough_since: float | None = None
    """Since when there have been as many nodes as the job needs at least."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask these nodes whether they are still there."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """The round is complete with these nodes, by rank."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until somebody comes, answers or leaves, or until a point in time."""

    until: float | None = None
    wanted: int = 0
    """How many of those that wait a job that runs could take in."""


Action = Ask | Complete | Wait


def decide(forming: Forming, rules: Rules, now: float) -> Action:
    """What to do next about a round."""
    view = _View(forming, rules, now)
    unsure = view.worth_asking()
    if unsure:
        return Ask(unsure)
    if view.running or len(view.usable) < rules.min_nodes:
        # A node that runs will come when it is told to, however long its workers take to stop.
        return Wait(wanted=view.wanted())
    last_call = _last_call(forming, rules)
    if len(view.usable) < rules.max_nodes and not view.continues and now < last_call:
        return Wait(until=last_call)
    most = min(rules.in_units(len(view.usable)), rules.max_nodes)
    chosen = choose(view.usable, forming.previous, most)
    stale = tuple(node for node in chosen if view.standing(node) is Standing.STALE)
    if stale:
        return Ask(stale)
    asked = [node for node in chosen if view.standing(node) is Standing.ASKED]
    if asked:
        return Wait(until=min(view.answer_due(node) for node in asked))
    return Complete(assign_ranks(chosen, forming.previous))


def has_enough(forming: Forming, rules: Rules, now: float) -> bool:
    """Whether as many nodes as the job needs are there and, as far as is known, alive."""
    if len(forming.arrived) < rules.min_nodes:
        return False
    return len(_View(forming, rules, now).usable) >= rules.min_nodes


def is_alone(forming: Forming, rules: Rules, now: float) -> bool:
    """Whether none of the round before is left that could still come."""
    return not _View(forming, rules, now).running


def choose(usable: Sequence[str], previous: Sequence[str], most: int) -> tuple[str, ...]:
    """Those of the round before first, then in the order of arrival."""
    known = {node: rank for rank, node in enumerate(previous)}
    survivors = sorted((node for node in usable if node in known), key=known.__getitem__)
    newcomers = [node for node in usable if node not in known]
    return (*survivors, *newcomers)[:most]


def assign_ranks(nodes: Iterable[str], previous: Sequence[str]) -> tuple[str, ...]:
    """The nodes by rank: whoever had a rank that still exists keeps it, others fill the gaps."""
    nodes = tuple(nodes)
    there = frozenset(nodes)
    kept = {rank: node for rank, node in enumerate(previous[: len(nodes)]) if node in there}
    keepers = frozenset(kept.values())
    others = iter([node for node in nodes if node not in keepers])
    return tuple(kept[rank] if rank in kept else next(others) for rank in range(len(nodes)))


class _View:
    """The same facts, sorted."""

    def __init__(self, forming: Forming, rules: Rules, now: float) -> None:
        self._forming = forming
        self._rules = rules
        self._now = now
        self._previous = frozenset(forming.previous)
        arrived = frozenset(forming.arrived)
        self.continues = not self._previous.isdisjoint(arrived)
        """Whether the job goes on with nodes that it had: others may join it at any time."""
        self._runs_well = not self.continues and self._previous.isdisjoint(forming.left)
        self._standings = {
            node: self._judge(node, sighting) for node, sighting in forming.sightings.items()
        }
        self.usable = [
            node
            for node in forming.arrived
            if self.standing(node) not in (Standing.SILENT, Standing.GONE)
        ]
        self.running = [
            node
            for node in forming.previous
            if node not in arrived
            and node not in forming.left
            and self.standing(node) is not Standing.GONE
        ]

    def standing(self, node: str) -> Standing:
        return self._standings.get(node, Standing.STALE)

    def _judge(self, node: str, sighting: Sighting) -> Standing:
        patrol = self._runs_well and node in self._previous
        return sighting.standing(self._now, self._rules, patrol=patrol)

    def answer_due(self, node: str) -> float:
        asked = self._forming.sightings[node].asked
        return (self._now if asked is None else asked) + self._rules.keep_alive_interval

    def worth_asking(self) -> tuple[str, ...]:
        return tuple(node for node in self.running if self.standing(node) is Standing.STALE)

    def wanted(self) -> int:
        if not self.running:
            return 0
        newcomers = [node for node in self.usable if node not in self._previous]
        survivors = len(self.usable) - len(newcomers) + len(self.running)
        most = min(self._rules.in_units(survivors + len(newcomers)), self._rules.max_nodes)
        return max(0, most - survivors)


def _last_call(forming: Forming, rules: Rules) -> float:
    since = forming.enough_since
    return float("inf") if since is None else since + rules.last_call_timeout
