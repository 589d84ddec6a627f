"""The agents of a job: where each was started, how far it came, and whether it is surely gone."""

from collections.abc import Iterator
from dataclasses import dataclass

from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.endings import LastWords, Meaning, meaning_of


@dataclass(slots=True)
class Seat:
    """One agent on one node."""

    agent: str
    node: Node
    started: float
    host: str = ""
    member: str = ""
    """What the rendezvous knows it by."""
    is_connected: bool = False
    cut_at: float | None = None
    """When its own end of the leash was closed: by it, or by its kernel when it died."""
    is_unseen: bool = False
    """The engine cannot say any more whether it lives."""
    words: LastWords | None = None
    is_fenced: bool = False
    """Whether it was told to go."""
    condemned_at: float | None = None
    """Since when it counts as lost, though nobody has seen its end."""
    has_ended: bool = False
    exit_code: int | None = None
    task: str = ""
    """Its place, if a placer has given it one."""
    attempt: int | None = None
    """The last round that it took part in."""
    asks_since: float | None = None
    """When it asked whether it may start afresh here, with the whole job."""
    may_go: int | None = None
    """The generation that it was let into last."""
    has_no_place: bool = False
    """Whether it was told to go since its place is given to nobody, or to another one."""
    is_dealt_with: bool = False
    """Whether its end has had its consequences."""

    @property
    def meaning(self) -> Meaning:
        meaning = meaning_of(self.exit_code, self.words)
        return Meaning.LOST if self.is_fenced and meaning is Meaning.REPLACE else meaning

    @property
    def has_arrived(self) -> bool:
        """Whether it has ever been heard of."""
        return bool(self.host)

    @property
    def has_said_why(self) -> bool:
        """Whether it has left a decision of the whole job."""
        return self.words is not None and self.words.action is not None

    def why_it_failed(self) -> str:
        """A sentence for the job's result."""
        if self.words is not None and self.words.reason:
            return self.words.reason
        where = f"the agent on {self.node.hostname}"
        if self.has_arrived:
            return f"{where} ended with {self.exit_code}"
        return f"{where} ended with {self.exit_code} before it was heard of; can it start there?"

    def stays_away(self, now: float, patience: float) -> bool:
        """Whether its leash was cut, and it did not connect again."""
        return self.cut_at is not None and now - self.cut_at >= patience

    def is_gone(self, now: float, patience: float) -> bool:
        """Whether nothing of it runs any more: seen, or since it would have ended itself by now."""
        if self.has_ended:
            return True
        return self.condemned_at is not None and now - self.condemned_at >= patience


class Roster:
    """All seats of a job, past ones too, in the order of their start."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def add(self, node: Node, started: float, task: str = "") -> Seat:
        """A seat for a new agent, whose name tells the node and how many there were before."""
        name = "".join(c if c.isalnum() or c in "-_" else "-" for c in node.hostname) or "node"
        seat = Seat(f"{name}.{len(self._seats)}", node, started, task=task)
        self._seats[seat.agent] = seat
        return seat

    def get(self, agent: str) -> Seat | None:
        return self._seats.get(agent)

    def present(self) -> list[Seat]:
        """Those that run, as far as is known."""
        return [seat for seat in self if not seat.has_ended and seat.condemned_at is None]

    def unfinished(self) -> list[Seat]:
        """Those whose end nobody has seen."""
        return [seat for seat in self if not seat.has_ended]

    def occupied(self) -> set[str]:
        """The nodes that have an agent, or may still have one."""
        return {seat.node.id for seat in self if not seat.is_dealt_with}
