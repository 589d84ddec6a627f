"""The nodes as a manager knows them: which are there, which are not used, and which are doubted."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.placer import Question
from dlrover_cli.manager.placing import Demand, missing, to_place
from dlrover_cli.manager.replacing import Relaunched

_LAST_SEEN_SECONDS = 60.0
"""How long an engine may show a node as healthy that is being relaunched."""


@dataclass(slots=True)
class KnownNodes:
    """Belongs to the manager's thread; others may read what is there."""

    there: tuple[Node, ...] = ()
    """The healthy ones, as of the last look."""
    excluded: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """Nodes that have lost an agent."""
    _asked: set[str] = field(default_factory=set)
    """Nodes whose replacement was asked for and not answered yet."""
    _going: dict[str, float] = field(default_factory=dict)
    """Nodes that were relaunched and are shown as before, with when that counts as new."""

    def ids(self) -> set[str]:
        return {node.id for node in self.there}

    def see(self, nodes: tuple[Node, ...]) -> set[str]:
        """Take what the engine shows now, and return the ids of those that are gone."""
        before = self.ids()
        self.there = nodes
        new, gone = self.ids() - before, before - self.ids()
        self.excluded -= new  # as good as new
        self.doubtful -= new
        for node in gone:
            self._going.pop(node, None)
        return gone

    def give_up(self, node: str) -> None:
        """Its replacement is asked for; until it is there, the node is not used."""
        self.excluded.add(node)
        self._asked.add(node)

    def note_relaunch(self, answer: Relaunched, now: float) -> list[str]:
        """Whoever was relaunched will be as good as new; returns the ids of those that were not."""
        self._asked -= set(answer.asked)
        for node in self.excluded & set(answer.relaunched):
            if node in self.ids():
                self._going[node] = now + _LAST_SEEN_SECONDS
            else:
                self.excluded.discard(node)
        return sorted(set(answer.asked) - set(answer.relaunched))

    def to_place(self, demand: Demand, occupied: Set[str], now: float) -> list[Node]:
        """Where to start agents now."""
        for node in [node for node, last in self._going.items() if now >= last]:
            del self._going[node]
            self.excluded.discard(node)
        return to_place(self.there, demand, self.excluded, occupied, self.doubtful)

    def take_back(self, occupied: Set[str], room: int) -> list[Node]:
        """Nobody replaced anything and there is no spare: the excluded ones that live must do."""
        if self._asked or self._going or not occupied | self.excluded:
            return []
        again = [node for node in self.there if node.id in self.excluded - occupied]
        self.excluded -= {node.id for node in again[:room]}
        return again[:room]

    def question(self, again: Iterable[str] = ()) -> Question:
        """What a placer is asked."""
        excluded, doubtful = frozenset(self.excluded), frozenset(self.doubtful)
        return Question(self.there, excluded, doubtful, frozenset(again))

    def missing(self, demand: Demand) -> str:
        """Why a job cannot start, in words."""
        return missing(self.there, demand, self.excluded)
