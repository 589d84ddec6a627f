"""What the nodes of one job leave for each other in the store where they meet.

A round's keys carry its number, so that nobody reads those of another round.

round               the number of the last complete round; beyond any round, the job is closed
<n>/log             one line of JSON per arrival or departure
<n>/tickets         how many have arrived; whoever gets the first ticket coordinates. Sealed, by a
                    number larger than any, when the round or the job is over
<n>/coordinator     who does, if the first one was given up
<n>/beat            counts while the coordinator lives
<n>/bell            a queue of messages to the coordinator
<n>/outcome         written once: the members by rank
mail/<node>         a queue of messages to one node
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import Store

_CLOSED = 1 << 40
_SEALED = 1 << 40
_NO_END = timedelta(days=24)  # torch counts its milliseconds in 31 bits

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come."""

    round: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a round ended: with its members, or given up, when those of the last one still count."""

    members: tuple[str, ...]
    """By rank."""
    bounds: tuple[int, int]
    """How many nodes the job may have, at least and at most."""
    void: bool = False
    master: tuple[str, int] | None = None
    """Where the workers' store of this round is."""

    def rank_of(self, node: str) -> int | None:
        return None if self.void or node not in self.members else self.members.index(node)


class JobBoard:
    """One job's keys. A handful of operations per node and round, whatever the number of nodes."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._prefix = f"dlrover/rendezvous/{run_id}"

    def clone(self) -> "JobBoard":
        """The same board over a connection of its own, for a thread that waits without end."""
        store = self._store.clone()  # type: ignore[attr-defined]
        store.set_timeout(_NO_END)
        return JobBoard(store, self._run_id)

    def progress(self) -> Progress:
        value = self._store.add(self._key("round"), 0)
        return Progress(value % _CLOSED, value >= _CLOSED)

    def close(self) -> bool:
        """Let nobody join any more. False if somebody else was first."""
        if self.progress().is_closed:
            return False
        return self._store.add(self._key("round"), _CLOSED) < 2 * _CLOSED

    def log(self, number: int, entry: Message) -> None:
        self._store.append(self._key(number, "log"), json.dumps(entry) + "\n")  # type: ignore[attr-defined]

    def read_log(self, number: int, skip: int = 0) -> list[Message]:
        """The entries after the first ``skip`` ones."""
        key = self._key(number, "log")
        if not self._store.check([key]):
            return []
        return [json.loads(line) for line in self._store.get(key).splitlines()[skip:]]

    def take_ticket(self, number: int) -> int | None:
        """Counted from 1. None if the round is over: whoever has logged its arrival after the last
        look at the log gets none, and whoever gets one is found there."""
        ticket = self._store.add(self._key(number, "tickets"), 1)
        return None if ticket >= _SEALED else ticket

    def seal(self, number: int) -> None:
        self._store.add(self._key(number, "tickets"), _SEALED)

    def coordinator(self, number: int) -> str:
        """The node that took over, if one had to."""
        key = self._key(number, "coordinator")
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def take_over(self, number: int, former: str, node: str) -> bool:
        """Coordinate in the place of ``former``; one of those who try succeeds."""
        key = self._key(number, "coordinator")
        return bytes(self._store.compare_set(key, former, node)) == node.encode()

    def beat(self, number: int, times: int = 1) -> int:
        return self._store.add(self._key(number, "beat"), times)

    def settle(self, number: int, outcome: Outcome) -> Outcome:
        """Write how a round ended, unless somebody has; how it did end."""
        value = json.dumps(asdict(outcome))
        written = bytes(self._store.compare_set(self._key(number, "outcome"), "", value))
        if written == value.encode():
            self._store.add(self._key("round"), 1)
            self._forget(number - 2)
            return outcome
        return _outcome(written)

    def outcome(self, number: int) -> Outcome | None:
        key = self._key(number, "outcome")
        return _outcome(self._store.get(key)) if self._store.check([key]) else None

    def ring(self, number: int, message: Message) -> None:
        """Send to whoever coordinates the round."""
        self._push(self._key(number, "bell"), message)

    def send(self, nodes: Iterable[str], message: Message) -> None:
        for node in nodes:
            self._push(self._key("mail", node), message)

    def next_message(self, queue: str) -> Message:
        """Take one out of a queue, ``mail/<node>`` or ``<n>/bell``. Blocks."""
        message: Message = json.loads(self._store.queue_pop(self._key(queue)))
        return message

    def push(self, queue: str, message: Message) -> None:
        self._push(self._key(queue), message)

    def _push(self, key: str, message: Message) -> None:
        self._store.queue_push(key, json.dumps(message))

    def _forget(self, number: int) -> None:
        for name in ("log", "tickets", "coordinator", "beat", "outcome"):
            self._store.delete_key(self._key(number, name))

    def _key(self, *parts: str | int) -> str:
        return "/".join((self._prefix, *map(str, parts)))


def _outcome(value: bytes) -> Outcome:
    fields = json.loads(value)
    lists = {name: tuple(each) for name, each in fields.items() if isinstance(each, list)}
    return Outcome(**{**fields, **lists})
