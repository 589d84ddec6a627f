"""When the whole job starts afresh: which agents ask for their places again, and from when on.

The workers of a job have ended everywhere before its places are given back and looked for again.
Pure: what is known in, agents and counters out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dlrover_cli.failover.decide import Counters
from dlrover_cli.manager.roster import Seat

_NAMES = ("attempt", "restart_count", "generation", "node_relaunches", "fruitless")


def who_asks(
    present: Iterable[Seat], attempt: int | None, now: float, patience: float
) -> list[Seat]:
    """Those that ask, once all that took part in this attempt do; nobody before.

    One that does not come to it within ``patience`` is not waited for: it asks for itself later.
    """
    there = [seat for seat in present if not seat.is_fenced]
    asking = [seat for seat in there if seat.asks_since is not None]
    since = min((seat.asks_since for seat in asking if seat.asks_since is not None), default=now)
    is_awaited = any(
        seat.asks_since is None and seat.attempt is not None and seat.attempt == attempt
        for seat in there
    )
    return [] if is_awaited and now - since < patience else asking


def counters_from(message: Mapping[str, Any]) -> Counters | None:
    """Where counting goes on, as an agent has said it; None if it is no such thing."""
    numbers = {name: message.get(name, 0) for name in _NAMES}
    if not all(isinstance(number, int) for number in numbers.values()):
        return None
    return Counters(**numbers)
