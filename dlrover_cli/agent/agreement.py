"""One failure, one decision: how the agents of a round come to do the same thing.

Whoever notices something that concerns the job (a failed worker, nodes that wait to join) puts a
report into the control store, in the store's order, and wakes the others. The first reporter is the
arbiter: it picks the report that shows the cause, giving a better one a moment to arrive when its
own looks like a mere consequence. The node that wrote the chosen report decides, and everybody
adopts its decision. All of it needs only set, get, add, wait and check.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from torch.distributed import Store

from dlrover_cli.errors import DlroverError
from dlrover_cli.workers.inbox import Inbox

BETTER_REPORT_SECONDS = 0.25
"""How long a report of a consequence waits for one of the cause."""

_LEAVE_SECONDS = 0.5
_WAIT_SLICE = timedelta(days=1)  # torch prints two warnings at the end of each
_SPARE_SECONDS = 0.5
"""How long the client that waits for the wake-up key may take to be free."""
_POLL_SECONDS = 0.1

Report = dict[str, Any]
"""``{"weight": int, …}``: the lighter the weight, the likelier it is a mere consequence."""

WEIGHT_MEMBERSHIP = 0
WEIGHT_COLLATERAL = 1
WEIGHT_CAUSE = 2
WEIGHT_REQUEST = 3
"""A person who says what to do."""


class ControlStoreLost(DlroverError):
    """The store over which the agents agree cannot be reached any more."""


@dataclass(frozen=True, slots=True)
class PeersFrozen:
    """Some agent of the round has reported something; the round will end with a decision."""

    agreement: "Agreement"


@dataclass(frozen=True, slots=True)
class PeersDone:
    """The workers of every node have succeeded."""

    agreement: "Agreement"


class Agreement(Protocol):
    """One round's way to a common decision. Blocking methods belong off the agent's loop."""

    def watch(self) -> None:
        """Start posting PeersFrozen or PeersDone to the inbox."""
        ...

    def add_report(self, report: Report) -> None:
        """Put a report forward. Blocks."""
        ...

    def settle(self, decide: Callable[[Report], Report], timeout: float) -> Report:
        """Return the round's decision; ``decide`` is called if our report is chosen. Blocks."""
        ...

    def is_first(self) -> bool:
        """Whether nobody has asked this before us, of all who act on the decision. Blocks.

        Of a store that is lost nobody knows: better everybody is the first than nobody.
        """
        ...

    def depart(self, report: Report, decide: Callable[[Report], Report], timeout: float) -> None:
        """Say that this node goes; if it was to decide, its going is the decision. Blocks."""
        ...

    def finish(self) -> None:
        """Say that this node's workers have all succeeded. Blocks."""
        ...

    def leave(self) -> None:
        """Say that the round is no longer needed, and give the others a moment to say so too."""
        ...


class LocalAgreement:
    """The agreement of a round with one node, or of nodes that share no usable store."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._reports: list[Report] = []

    def watch(self) -> None:
        """Nobody else can report anything."""

    def add_report(self, report: Report) -> None:
        self._reports.append(report)

    def settle(self, decide: Callable[[Report], Report], timeout: float) -> Report:
        return decide(_weightiest(self._reports))

    def is_first(self) -> bool:
        return True

    def depart(self, report: Report, decide: Callable[[Report], Report], timeout: float) -> None:
        """Nobody is there to be told."""

    def finish(self) -> None:
        self._inbox.post(PeersDone(self))

    def leave(self) -> None:
        """Nobody else is there."""


class StoreAgreement:
    """The agreement of a round with several nodes, over its control store."""

    def __init__(
        self,
        inbox: Inbox,
        store: Store,
        rank: int,
        world_size: int,
        patience: float = BETTER_REPORT_SECONDS,
    ) -> None:
        """``patience``: how long a report of a consequence waits for one of the cause."""
        self._patience = patience
        self._inbox = inbox
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._own: dict[int, Report] = {}
        self._lock = threading.Lock()  # a store client serves one call at a time
        self._waiter: Store | None = None
        self._waiting = threading.Lock()  # and so does the one that only waits

    def watch(self) -> None:
        """Wait for the wake-up key in a daemon thread, with a store client of its own."""
        thread = threading.Thread(target=self._watch, name="peer-watch", daemon=True)
        thread.start()

    def add_report(self, report: Report) -> None:
        with self._guarded():
            number = self._store.add("reports", 1)
            self._own[number] = report
            self._store.set(f"report/{number}", json.dumps({**report, "rank": self._rank}))
            self._store.set("wake", "report")

    def settle(self, decide: Callable[[Report], Report], timeout: float) -> Report:
        deadline = time.monotonic() + timeout
        if 1 in self._own:
            self._choose()
        chosen = self._await("chosen", deadline)
        if chosen is not None and chosen["number"] in self._own:
            self._put_decision(decide(self._own[chosen["number"]]))
        decision = self._await("decision", deadline)
        if decision is None:
            return self._decide_for_the_missing(decide)
        return decision

    def is_first(self) -> bool:
        try:
            with self._guarded():
                return bool(self._store.add("acting", 1) == 1)
        except ControlStoreLost:
            return True

    def depart(self, report: Report, decide: Callable[[Report], Report], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self.add_report(report)
        if 1 in self._own:
            self._choose()
        chosen = self._await("chosen", deadline)
        if chosen is not None and chosen["number"] in self._own:
            self._put_decision(decide(report))

    def finish(self) -> None:
        with self._guarded():
            if self._store.add("done", 1) == self._world_size:
                self._store.set("wake", "done")

    def leave(self) -> None:
        deadline = time.monotonic() + _LEAVE_SECONDS
        try:
            with self._guarded():
                if self._store.add("left", 1) == self._world_size:
                    self._store.set("all_left", "1")
            # Our process may host the store: the others must have read what they need.
            self._await("all_left", deadline)
        except ControlStoreLost:
            return

    def _watch(self) -> None:
        try:
            self._wait_for_wake()
            with self._guarded():
                reported = self._store.add("reports", 0) > 0
        # Whatever the store raises, it is gone; our own workers will tell.
        except Exception:  # noqa: BLE001
            return
        self._inbox.post(PeersFrozen(self) if reported else PeersDone(self))

    def _wait_for_wake(self) -> None:
        with self._waiting:
            try:
                # A blocked wait blocks every other call on the same client, so it gets its own.
                waiter: Store = self._store.clone()  # type: ignore[attr-defined]
            except (RuntimeError, NotImplementedError):
                waiter = self._store
            else:
                self._waiter = waiter
                while not wait_for_keys(waiter, ["wake"], _WAIT_SLICE):
                    pass
        if waiter is self._store:
            self._poll_for_wake()

    def _poll_for_wake(self) -> None:
        """For stores that offer no second client, such as subclasses written in Python."""
        while True:
            with self._guarded():
                if self._store.check(["wake"]):
                    return
            time.sleep(_POLL_SECONDS)

    def _choose(self) -> None:
        with self._guarded():
            if self._store.add("choices", 1) > 1:
                return  # once is enough, and it must not change
        deadline = time.monotonic() + self._patience
        while True:
            reports = self._reports()
            if _weightiest(list(reports.values()))["weight"] != WEIGHT_COLLATERAL:
                break
            if not self._wait_for_report(len(reports) + 1, deadline):
                break
        best = max(report["weight"] for report in reports.values())
        number = min(n for n, report in reports.items() if report["weight"] == best)
        self._put("chosen", {"number": number})

    def _reports(self) -> dict[int, Report]:
        with self._guarded():
            count = self._store.add("reports", 0)
            keys = {number: f"report/{number}" for number in range(1, count + 1)}
            return {
                number: json.loads(self._store.get(key))
                for number, key in keys.items()
                if self._store.check([key])
            }

    def _wait_for_report(self, number: int, deadline: float) -> bool:
        return self._await(f"report/{number}", deadline) is not None

    def _decide_for_the_missing(self, decide: Callable[[Report], Report]) -> Report:
        """The node that had to decide is gone: the first one to notice does it instead."""
        with self._guarded():
            first = self._store.add("stand_in", 1) == 1
        if first:
            self._put_decision(decide(_weightiest(list(self._reports().values()))))
        decision = self._await("decision", time.monotonic() + 5.0)
        if decision is None:
            raise ControlStoreLost("no agent of the round came to a decision")
        return decision

    def _put_decision(self, decision: Report) -> None:
        """The first one stands: a node that was given up may come back with another."""
        with self._guarded():
            if self._store.add("decisions", 1) == 1:
                self._store.set("decision", json.dumps(decision))

    def _put(self, key: str, value: Report) -> None:
        with self._guarded():
            self._store.set(key, json.dumps(value))

    def _await(self, key: str, deadline: float) -> Report | None:
        """With the client that waits, if there is one: others may have to speak meanwhile."""
        left = max(0.001, deadline - time.monotonic())
        if self._waiter is not None and self._waiting.acquire(timeout=min(left, _SPARE_SECONDS)):
            with _Guarded(self._waiting, is_held=True):
                return self._read(self._waiter, key, deadline)
        with self._guarded():
            return self._read(self._store, key, deadline)

    def _read(self, store: Store, key: str, deadline: float) -> Report | None:
        left = max(0.001, deadline - time.monotonic())
        if not wait_for_keys(store, [key], timedelta(seconds=left)):
            return None
        value: Report = json.loads(store.get(key))
        return value

    def _guarded(self) -> "_Guarded":
        return _Guarded(self._lock)


class _Guarded:
    """One caller at a time; whatever the store raises means that it is lost."""

    def __init__(self, lock: threading.Lock, *, is_held: bool = False) -> None:
        self._lock = lock
        self._is_held = is_held

    def __enter__(self) -> None:
        if not self._is_held:
            self._lock.acquire()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._lock.release()
        if isinstance(error, RuntimeError | OSError):
            raise ControlStoreLost(f"the control store is lost: {error}") from error


def wait_for_keys(store: Store, keys: list[str], timeout: timedelta) -> bool:
    """Wait for all keys. False when the time is up; raises when the store is gone."""
    from torch.distributed import DistNetworkError, DistStoreError

    try:
        store.wait(keys, timeout)
    except DistNetworkError:
        raise
    except (DistStoreError, LookupError, TimeoutError):
        return False
    except RuntimeError as error:
        if "timeout" in str(error).lower():
            return False
        raise
    return True


def _weightiest(reports: list[Report]) -> Report:
    """The report nearest to the cause; of several, the earliest."""
    return max(reports, key=lambda report: int(report["weight"]))
