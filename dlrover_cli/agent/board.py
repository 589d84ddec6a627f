"""Whether anybody in the job still moves: nodes tell each other over the control store.

A rank that waits in a collective for a rank on another node, which is busy writing a checkpoint,
does not hang. So a node publishes that it moved, and one that sees no movement of its own looks at
what the others have published before it worries.
"""

import contextlib
import threading
import time
from collections.abc import Callable

from torch.distributed import Store

_SHARE_OF_TIMEOUT = 0.25
_SHORTEST_TICK = 0.2


class ProgressBoard:
    """Publishes this node's movement and notices that of others. Owns its thread.

    ``moved_at`` is asked from that thread for the time (``time.monotonic``) of this node's last
    movement. A store that cannot be reached ends the exchange; the node then judges alone.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        timeout: float,
        moved_at: Callable[[], float],
    ) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(world_size) if other != rank]
        self._tick = max(_SHORTEST_TICK, timeout * _SHARE_OF_TIMEOUT)
        self._moved_at = moved_at
        self._seen: dict[int, str] = {}
        self._stop = threading.Event()
        self.others_moved_at = 0.0
        """When another node was last seen to have moved; 0 if never."""
        self._thread = threading.Thread(target=self._run, name="progress-board", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing. A call that hangs in the store is left behind."""
        self._stop.set()
        self._thread.join(timeout=0.5)

    def _run(self) -> None:
        published = 0.0
        # Whatever the store raises, the exchange is over; the node judges alone from then on.
        with contextlib.suppress(Exception):
            store = self._store.clone()  # type: ignore[attr-defined]
            while not self._stop.wait(self._tick):
                moved = self._moved_at()
                if moved > published:
                    published = moved
                    store.set(f"moved/{self._rank}", str(moved))
                elif time.monotonic() - moved > self._tick:
                    self._look_at_others(store)

    def _look_at_others(self, store: Store) -> None:
        for other in self._others:
            key = f"moved/{other}"
            if not store.check([key]):
                continue
            said = store.get(key).decode()
            if self._seen.get(other) != said:
                self._seen[other] = said
                self.others_moved_at = time.monotonic()
