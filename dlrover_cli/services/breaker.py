"""A breaker: a dead service costs one deadline, and not one for each question.

closed ──silence, or several other failures in a row──► open ──a while later──► trying
  ▲                                                      ▲ └─ all others are refused ─┘ │
  └──────────────────────── an answer, of any kind ──────┼──────────────────────────────┘
                                                         └── another failure
"""

import threading
from collections.abc import Callable

FAILURES = 3
"""In a row, of a kind that costs no time; a single one may be a connection that was reset."""
SHORTEST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
PAUSE_IN_DEADLINES = 10.0
"""So that a service that stays dead takes less than a tenth of the time."""


class Breaker:
    """Says whether a service may be asked now; used by several threads."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._pause = min(max(SHORTEST_PAUSE, PAUSE_IN_DEADLINES * deadline), LONGEST_PAUSE)
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at: float | None = None
        """When it was opened; None while it is closed."""
        self._is_trying = False

    def refuses(self) -> float | None:
        """None if the service may be asked; otherwise how many seconds ago it failed.

        Who was allowed has to say how it went: `succeeded`, `failed` or `gave_up`.
        """
        with self._lock:
            if self._failed_at is None:
                return None
            since = self._clock() - self._failed_at
            if self._is_trying or since < self._pause:
                return since
            self._is_trying = True
            return None

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._failed_at, self._is_trying = 0, None, False

    def failed(self, *, silently: bool) -> None:
        """It could not be asked; silently, if that took a whole deadline."""
        with self._lock:
            self._failures += 1
            if silently or self._is_trying or self._failures >= FAILURES:
                self._failed_at = self._clock()
            self._is_trying = False

    def gave_up(self) -> None:
        """Who asked was interrupted, and nothing is known."""
        with self._lock:
            self._is_trying = False
