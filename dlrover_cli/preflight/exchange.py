"""How the nodes of a round tell each other, over its control store: orders one way, reports back.

Node rank 0 gives one order per stage and the verdict as the last; everybody reports on each. It
needs set, get, wait or check, and a client of its own where the store has one to give: a wait
blocks a client for everybody, and torch's c10d sends its keep-alives over the same one.
"""

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from torch.distributed import PrefixStore, Store

from dlrover_cli.agent.agreement import wait_for_keys
from dlrover_cli.agent.rounds import Round

_POLL_SECONDS = 0.05
_FAREWELL_SECONDS = 2.0

Message = dict[str, Any]


class Exchange(Protocol):
    """One node's end, in one check. All methods block: they belong off the agent's loop."""

    def give(self, number: int, order: Message) -> None:
        """For node rank 0: tell everybody what comes next."""
        ...

    def take(self, number: int, seconds: float) -> Message | None:
        """The order with this number; None if it does not come."""
        ...

    def report(self, number: int, report: Message) -> None:
        """Say how the stage with this number went here."""
        ...

    def collect(self, number: int, seconds: float) -> dict[int, Message]:
        """For node rank 0: the reports of all who gave one in time."""
        ...

    def part(self, *, waits: bool) -> None:
        """Say that the verdict is known here; a node whose store others need waits a moment."""
        ...


class NobodyElse:
    """The exchange of a node that is alone."""

    def __init__(self) -> None:
        self._reports: dict[int, Message] = {}

    def give(self, number: int, order: Message) -> None:
        """Nobody is there to be told."""

    def take(self, number: int, seconds: float) -> Message | None:
        return None

    def report(self, number: int, report: Message) -> None:
        self._reports = {0: report}

    def collect(self, number: int, seconds: float) -> dict[int, Message]:
        return self._reports

    def part(self, *, waits: bool) -> None:
        """Nobody is there who could need anything."""


class StoreExchange:
    """The exchange of several nodes."""

    def __init__(self, round_: Round) -> None:
        self._rank = round_.rank
        self._nodes = round_.world_size
        store = PrefixStore("preflight", round_.control)
        self._is_own = False
        with suppress(RuntimeError, NotImplementedError, AttributeError):
            store = store.clone()  # type: ignore[attr-defined]
            self._is_own = True
        self._store: Store = store

    def give(self, number: int, order: Message) -> None:
        self._store.set(f"order/{number}", json.dumps(order))

    def take(self, number: int, seconds: float) -> Message | None:
        return self._read(f"order/{number}", time.monotonic() + seconds)

    def report(self, number: int, report: Message) -> None:
        self._store.set(f"report/{number}/{self._rank}", json.dumps(report))

    def collect(self, number: int, seconds: float) -> dict[int, Message]:
        deadline = time.monotonic() + seconds
        found = {}
        for node in range(self._nodes):
            report = self._read(f"report/{number}/{node}", deadline)
            if report is not None:
                found[node] = report
        return found

    def part(self, *, waits: bool) -> None:
        self._store.set(f"parted/{self._rank}", "1")
        keys = [f"parted/{node}" for node in range(self._nodes)]
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while waits and not self._store.check(keys) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _read(self, key: str, deadline: float) -> Message | None:
        if not self._is_there(key, deadline):
            return None
        value: Message = json.loads(self._store.get(key))
        return value

    def _is_there(self, key: str, deadline: float) -> bool:
        if self._is_own:
            left = max(0.001, deadline - time.monotonic())
            return wait_for_keys(self._store, [key], timedelta(seconds=left))
        while not self._store.check([key]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True
