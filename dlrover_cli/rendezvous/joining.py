"""One node's way into a round: announce it, wait for mail, and coordinate if nobody else does."""

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
)

from dlrover_cli.rendezvous.coordinator import Coordinator
from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.job_board import JobBoard, Message, Outcome
from dlrover_cli.rendezvous.troubles import NodeRefused, NodesMissing, StoreLost
from dlrover_cli.rendezvous.workers_store import WorkersStore

LEAVE: Message = {"kind": "leave"}
"""Put into a node's inbox, it ends its wait."""

_LOST: Message = {"kind": "lost"}
_TELL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Membership:
    """Who this node is, and where."""

    node: str
    run_id: str
    endpoint: str
    rules: Rules

    @property
    def bounds(self) -> tuple[int, int]:
        return self.rules.min_nodes, self.rules.max_nodes


@dataclass(frozen=True, slots=True)
class Placed:
    """This node's part in a complete round."""

    number: int
    rank: int
    world_size: int
    master: tuple[str, int] | None
    """Where the workers' store is."""


@dataclass(slots=True)
class _Visit:
    """The wait for the end of one round."""

    number: int
    deadline: float
    beat_since: float
    beat: int = -1
    beaten_by: str = ""
    """Who coordinated when the beat was last seen to change."""
    coordinator: Coordinator | None = None
    told_at: float = 0.0
    """When it was last told how many nodes are there."""
    told: int = 0


@dataclass(frozen=True, slots=True)
class _Over:
    placed: Placed | None
    """None if the round ended without this node."""


class Joining:
    """The rounds of one node, one at a time. The inbox is filled by the node's mailbox."""

    def __init__(
        self,
        me: Membership,
        board: JobBoard,
        inbox: "queue.SimpleQueue[Message]",
        workers_store: WorkersStore,
    ) -> None:
        self._me = me
        self._board = board
        self._inbox = inbox
        self._workers_store = workers_store
        self.on_arrivals: Callable[[int, int], None] = lambda nodes, wanted: None
        """Told how many nodes wait and how many are needed, where a wait is long enough."""

    def run(self, last: Placed | None) -> Placed:
        """Wait for a complete round. Raises torch's RendezvousError, ours, or RuntimeError.

        Who was in a round of the job before, in ``last``, waits for the join timeout. Others may
        have come as spares, and wait as long as the job runs.
        """
        number = self._next_number() if last is None else last.number + 1
        is_spare = number > 1 and last is None
        deadline = time.monotonic() + self._me.rules.join_timeout
        while True:
            over = self._take_part(number, float("inf") if is_spare else deadline)
            if over.placed is not None:
                return over.placed
            outcome = self._board.outcome(number)
            is_spare = is_spare or (outcome is not None and not outcome.void)
            number = self._next_number()

    def lose(self, error: BaseException) -> None:
        """End the wait, if there is one: the store is gone."""
        self._inbox.put(_LOST)

    def say_goodbye(self, number: int, node: str) -> None:
        """Tell whoever coordinates a round that a node is not to be waited for."""
        self._board.log(number, {"left": node})
        self._board.ring(number, {"kind": "left"})

    def _next_number(self) -> int:
        """The round that is open."""
        progress = self._board.progress()
        if progress.is_closed:
            raise RendezvousClosedError(f"the job {self._me.run_id!r} has ended")
        return progress.round + 1

    def _take_part(self, number: int, deadline: float) -> _Over:
        self._board.log(number, {"node": self._me.node, "bounds": self._me.bounds})
        ticket = self._board.take_ticket(number)
        if ticket == 1 and self._board.progress().round >= number:
            # So long ago that nobody remembers it. This node was given up meanwhile.
            self._board.seal(number)
            ticket = None
        if ticket is None:
            return self._look_up(number)
        now = time.monotonic()
        visit = _Visit(number, deadline, now, told_at=now)
        if ticket == 1:
            visit.coordinator = self._coordinate(number, takes_over=False)
        elif ticket >= self._me.rules.min_nodes:
            self._board.ring(number, {"kind": "arrived", "ticket": ticket})
        try:
            return self._wait(visit)
        finally:
            if visit.coordinator is not None:
                visit.coordinator.stop()

    def _wait(self, visit: _Visit) -> _Over:
        while True:
            now = time.monotonic()
            until = now + self._me.rules.lease / 2
            coordinator = visit.coordinator
            if coordinator is not None:
                outcome, until = coordinator.step(now)
                if outcome is not None:
                    return self._over(visit.number, outcome)
                if coordinator.is_deposed:
                    coordinator.stop()
                    visit.coordinator = None
                    continue
                if coordinator.has_expired(now):
                    coordinator.give_up({"kind": "expired"})
                    raise NodesMissing(self._me.rules, coordinator.count)
                self._tell_arrivals(visit, coordinator.count, now)
            if now >= visit.deadline:
                self._withdraw(visit)
                raise NodesMissing(self._me.rules, coordinator.count if coordinator else None)
            messages = self._messages(min(until, visit.deadline) - now)
            if not messages and coordinator is None and self._is_overdue(visit):
                return self._look_up(visit.number)
            for message in messages:
                if message.get("round", visit.number) == visit.number:
                    over = self._act_on(message, visit)
                    if over is not None:
                        return over

    def _tell_arrivals(self, visit: _Visit, count: int, now: float) -> None:
        """Not in every moment: a thousand nodes may come within one."""
        if count != visit.told and now - visit.told_at >= _TELL_SECONDS:
            visit.told, visit.told_at = count, now
            self.on_arrivals(count, self._me.rules.min_nodes)

    def _messages(self, seconds: float) -> list[Message]:
        """All that have come; waits for the first one."""
        messages = []
        with suppress(queue.Empty):
            messages.append(self._inbox.get(timeout=max(0.0, seconds)))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _act_on(self, message: Message, visit: _Visit) -> _Over | None:
        match message:
            case {"kind": "complete", "rank": rank, "world_size": size, "master": master}:
                return _Over(Placed(visit.number, rank, size, master and tuple(master)))
            case {"kind": "over"}:
                return _Over(None)
            case {"kind": "host"}:
                address = self._workers_store.open()
                reply = {"kind": "hosting", "node": self._me.node, "address": address}
                self._board.ring(visit.number, reply)
            case {"kind": "closed"}:
                raise RendezvousClosedError(f"the job {self._me.run_id!r} has ended")
            case {"kind": "expired"}:
                raise NodesMissing(self._me.rules, None)
            case {"kind": "refused", "bounds": bounds}:
                raise NodeRefused(self._me.run_id, self._me.rules, bounds)
            case {"kind": "leave"}:
                self._withdraw(visit)
                raise RendezvousGracefulExitError("this node has left the rendezvous")
            case {"kind": "lost"}:
                raise StoreLost(self._me.endpoint)
            case _ if visit.coordinator is not None:
                visit.coordinator.hear(message, time.monotonic())
            case _:  # rung for the coordinator, which this node was until a moment ago
                self._board.ring(visit.number, message)
        return None

    def _is_overdue(self, visit: _Visit) -> bool:
        """Look after the coordinator. True if the round has ended and its message did not come."""
        if self._board.progress().round >= visit.number:
            return True
        now, beat = time.monotonic(), self._board.beat(visit.number, 0)
        if beat != visit.beat:
            visit.beat, visit.beat_since = beat, now
            visit.beaten_by = self._board.coordinator(visit.number)
        elif now - visit.beat_since >= self._me.rules.lease:
            if self._board.take_over(visit.number, visit.beaten_by, self._me.node):
                visit.coordinator = self._coordinate(visit.number, takes_over=True)
            visit.beat = -1  # look at whoever did
        return False

    def _coordinate(self, number: int, *, takes_over: bool) -> Coordinator:
        previous = self._board.outcome(number - 1)
        coordinator = Coordinator(
            self._board,
            self._me.node,
            number,
            self._me.rules,
            previous,
            self._inbox.put,
            self.lose,
            now=time.monotonic(),
            takes_over=takes_over,
        )
        if previous is not None and previous.members and previous.bounds != self._me.bounds:
            coordinator.give_up({"kind": "over"})
            coordinator.stop()
            raise NodeRefused(self._me.run_id, self._me.rules, previous.bounds)
        return coordinator

    def _withdraw(self, visit: _Visit) -> None:
        if visit.coordinator is not None:
            visit.coordinator.give_up({"kind": "over"})
        else:
            self.say_goodbye(visit.number, self._me.node)

    def _look_up(self, number: int) -> _Over:
        outcome = self._board.outcome(number)
        return _Over(None) if outcome is None else self._over(number, outcome)

    def _over(self, number: int, outcome: Outcome) -> _Over:
        rank = outcome.rank_of(self._me.node)
        if rank is None:
            return _Over(None)
        return _Over(Placed(number, rank, len(outcome.members), outcome.master))
