"""The node that coordinates a round: keeps the list, asks who is there, and says how it ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dlrover_cli.rendezvous.forming import (
    Ask,
    Complete,
    Forming,
    Rules,
    Sighting,
    Wait,
    decide,
    has_enough,
    is_alone,
)
from dlrover_cli.rendezvous.job_board import JobBoard, Message, Outcome
from dlrover_cli.rendezvous.mailbox import Mailbox

_MASTER_SECONDS = 60.0


@dataclass(slots=True)
class _Inquiry:
    """The question to the future node rank 0, where the workers' store of the round will be."""

    members: tuple[str, ...]
    since: float


@dataclass(slots=True)
class _List:
    """Who has come and gone, as far as it was read."""

    arrived: dict[str, None] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    entries: int = 0
    arrivals: int = 0
    """Of the entries, also those of nodes that were refused or have left since."""
    read_at: float = float("-inf")
    is_outdated: bool = True


class Coordinator:
    """Runs in the thread of the node that waits; only its bell has a thread of its own."""

    def __init__(
        self,
        board: JobBoard,
        node: str,
        number: int,
        rules: Rules,
        previous: Outcome | None,
        deliver: Callable[[Message], None],
        on_lost: Callable[[BaseException], None],
        *,
        now: float,
        takes_over: bool,
    ) -> None:
        self._board = board
        self._node = node
        self._number = number
        self._rules = rules
        self._previous = () if previous is None else previous.members
        self._bounds = (rules.min_nodes, rules.max_nodes)
        self._bounds_before = previous.bounds if previous and previous.members else self._bounds
        # Whoever came with the first coordinator has only just come.
        self._list = _List(read_at=float("-inf") if takes_over else now)
        # Those of the round before will come by themselves, if the round broke off.
        self._sightings = dict.fromkeys(self._previous, Sighting(now))
        self._forming = Forming(())
        self._enough_since: float | None = None
        self._alone_since: float | None = None
        self._inquiry: _Inquiry | None = None
        self._master: tuple[tuple[str, ...], tuple[str, int] | None] | None = None
        self._told = 0
        self._title = node if takes_over else ""
        self.is_deposed = False
        """Whether another node has taken this one for dead, and its place."""
        self._beat_at = float("-inf")
        self._bell = Mailbox(board, f"{number}/bell", lambda message, _: deliver(message), on_lost)

    def stop(self) -> None:
        """Listen to the bell no more."""
        self._bell.stop()

    def hear(self, message: Message, now: float) -> None:
        """Take in what somebody rang for."""
        match message:
            case {"kind": "here", "node": str(node)}:
                self._sightings[node] = Sighting(now, has_answered=True)
            case {"kind": "hosting", "node": str(node), "address": address}:
                self._sightings[node] = Sighting(now)
                if self._inquiry is not None and self._inquiry.members[0] == node:
                    self._master = (self._inquiry.members, address and tuple(address))
            case {"kind": "arrived", "ticket": int(ticket)} if ticket <= self._list.arrivals:
                pass  # whoever has come until then was read before the bell was heard
            case _:  # somebody came or went
                self._list.is_outdated = True

    def step(self, now: float) -> tuple[Outcome | None, float]:
        """Do what can be done; the outcome, or until when there is nothing more to do."""
        self._beat(now)
        while True:
            action = decide(self._look(now), self._rules, now)
            tick = now + self._rules.keep_alive_interval
            match action:
                case Ask(nodes):
                    self._ask(nodes, now)
                case Wait(until=until, wanted=wanted):
                    self._tell_of_newcomers(wanted)
                    return None, tick if until is None else min(tick, until)
                case Complete(members):
                    address = self._address_for_workers(members, now)
                    if address is None:
                        return None, tick
                    return self._settle(members, address[0]), tick

    def has_expired(self, now: float) -> bool:
        """Whether too few nodes have been there for too long, with nobody left who could come.

        As the last step saw it.
        """
        if self._enough_since is not None or not is_alone(self._forming, self._rules, now):
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        since = self._alone_since
        return since is not None and now - since >= self._rules.join_timeout

    def give_up(self, reason: Message) -> None:
        """End the round without members; everybody else who waits is told and may start another."""
        self._read_list(time.monotonic())
        self._tell_of_newcomers(0)
        left = self._list.left | {self._node}
        members = tuple(node for node in self._previous if node not in left)
        self._board.settle(self._number, Outcome(members, self._bounds_before, void=True))
        self._board.seal(self._number)
        self._read_list(time.monotonic())
        others = [node for node in self._list.arrived if node != self._node]
        self._board.send(others, {**reason, "round": self._number})

    @property
    def count(self) -> int:
        """How many nodes wait."""
        return len(self._list.arrived)

    def _look(self, now: float) -> Forming:
        if self._list.is_outdated or now - self._list.read_at >= self._rules.keep_alive_interval:
            self._read_list(now)
        self._sightings[self._node] = Sighting(now)
        forming = Forming(
            tuple(self._list.arrived),
            self._previous,
            frozenset(self._list.left),
            self._sightings,
        )
        if not has_enough(forming, self._rules, now):
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = now
        self._forming = replace(forming, enough_since=self._enough_since)
        return self._forming

    def _read_list(self, now: float) -> None:
        """Whoever is new in the list came after it was last read."""
        arrived, left = self._list.arrived, self._list.left
        entries = self._board.read_log(self._number, self._list.entries)
        for entry in entries:
            if "left" in entry:
                arrived.pop(entry["left"], None)
                left.add(entry["left"])
                continue
            self._list.arrivals += 1
            if entry["node"] not in self._list.refused and not self._refuses(entry):
                arrived[entry["node"]] = None
                self._sightings[entry["node"]] = Sighting(self._list.read_at)
        self._list.entries += len(entries)
        self._list.read_at, self._list.is_outdated = now, False

    def _refuses(self, entry: Message) -> bool:
        if tuple(entry["bounds"]) == self._bounds:
            return False
        self._list.refused.add(entry["node"])
        refusal = {"kind": "refused", "round": self._number, "bounds": self._bounds}
        self._board.send([entry["node"]], refusal)
        return True

    def _ask(self, nodes: tuple[str, ...], now: float) -> None:
        self._board.send(nodes, {"kind": "call", "round": self._number})
        for node in nodes:
            heard = self._sightings.get(node, Sighting(float("-inf"))).heard
            self._sightings[node] = Sighting(heard, asked=now)

    def _tell_of_newcomers(self, wanted: int) -> None:
        """Whoever runs has to know that a round with more nodes could be had."""
        if wanted == self._told:
            return
        self._told = wanted
        gone = {*self._list.arrived, *self._list.left}
        running = [node for node in self._previous if node not in gone]
        self._board.send(running, {"kind": "wanted", "round": self._number, "count": wanted})

    def _address_for_workers(
        self, members: tuple[str, ...], now: float
    ) -> tuple[tuple[str, int] | None] | None:
        """Where the workers' store will be, in a tuple; None while it is not known yet."""
        if self._master is not None and self._master[0][0] == members[0]:
            return (self._master[1],)
        inquiry = self._inquiry
        if inquiry is None or inquiry.members[0] != members[0]:
            self._inquiry = _Inquiry(members, now)
            self._board.send([members[0]], {"kind": "host", "round": self._number})
        elif now - inquiry.since >= _MASTER_SECONDS:
            return (None,)
        return None

    def _settle(self, members: tuple[str, ...], master: tuple[str, int] | None) -> Outcome:
        ours = Outcome(members, self._bounds, master=master)
        outcome = self._board.settle(self._number, ours)
        if outcome != ours:  # somebody who took us for dead was faster, and tells the others
            return outcome
        # Before the mail goes out: afterwards the store is busy with everybody who gets some.
        self._board.seal(self._number)
        self._read_list(time.monotonic())
        self._bell.hang_up()
        world = {"round": self._number, "world_size": len(members), "master": master}
        for rank, node in enumerate(members):
            if node != self._node:
                self._board.send([node], {"kind": "complete", "rank": rank, **world})
        spare = self._list.arrived.keys() - set(members) - {self._node}
        self._board.send(spare, {"kind": "over", "round": self._number})
        return outcome

    def _beat(self, now: float) -> None:
        if now - self._beat_at < self._rules.keep_alive_interval:
            return
        self._beat_at = now
        self._board.beat(self._number)
        self.is_deposed = self._board.coordinator(self._number) != self._title
        # An answer may have gone to the node that coordinated before.
        unanswered = [
            node
            for node, sighting in self._sightings.items()
            if sighting.asked is not None and 0 < now - sighting.asked < self._rules.lease
        ]
        self._board.send(unanswered, {"kind": "call", "round": self._number})
