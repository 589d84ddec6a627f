"""Does the job still move? A pure detector: it is shown what the ranks did and says what to think.

A rank moves by an optimizer step, by ``dlrover_cli.heartbeat()`` and by output. As long as one rank
moves, nobody hangs: rank 0 may write a checkpoint while all others wait for it. The detector also
says when it wants to be asked again, so that the agent can sleep until then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlrover_cli.workers.beats import Beat

_QUIET_STEPS = 10
_QUIET_SECONDS = 300.0
# An agent that wakes this much too late was stopped, most likely together with its workers.
_LATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class HangSettings:
    """``timeout`` 0 turns the detector off; it then warns at most."""

    timeout: float = 0.0
    start_grace: float = 600.0


@dataclass(frozen=True, slots=True)
class Activity:
    """What one rank that is still running has shown so far; times are ``time.monotonic``."""

    beat: Beat = field(default_factory=Beat)
    last_output: float | None = None
    """None where its output cannot be observed or there was none."""

    @property
    def last_moved(self) -> float:
        return max(self.beat.last_ns / 1e9, self.last_output or 0.0)


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing has moved for longer than is allowed."""

    ranks: tuple[int, ...]
    """The ranks that should have moved."""
    since: float
    """When one of them last did."""
    behind: tuple[int, ...] = ()
    """The ranks with fewer steps than the others, if there are any."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the detector thinks, and when it wants to look again."""

    hang: Hang | None = None
    """To be acted on."""
    warning: Hang | None = None
    """Nothing has moved for much longer than usual, but the detector is off: to be said, once."""
    again_at: float | None = None
    """``time.monotonic``; None if there is no need."""


class ProgressWatch:
    """Watches one attempt on one node."""

    def __init__(self, settings: HangSettings, started: float) -> None:
        self._settings = settings
        self._started = started
        self._awake_since = started
        self._planned: float | None = None
        self._warned = False

    def look(self, ranks: Mapping[int, Activity], now: float) -> Look:
        """Judge the running ranks. A hang is reported by every look; a warning once."""
        if self._planned is not None and now > self._planned + _LATE_SECONDS:
            self._awake_since = now
        look = self._judge(ranks, now)
        self._planned = look.again_at
        return look

    def _judge(self, ranks: Mapping[int, Activity], now: float) -> Look:
        if not ranks:
            return Look()
        limit = self._limit(ranks)
        if limit is None:
            # Too early to know what is usual; a job that gets there takes this long to worry.
            return Look(again_at=None if self._warned else now + _QUIET_SECONDS)
        if now < limit:
            # Before the first beat the limit is far off, and comes closer with that beat.
            soon = now + (self._settings.timeout or _QUIET_SECONDS)
            return Look(again_at=min(limit, soon))
        hang = Hang(tuple(sorted(ranks)), self._last_moved(ranks), _behind(ranks))
        if self._settings.timeout > 0:
            return Look(hang=hang)
        self._warned = True
        return Look(warning=hang)

    def _limit(self, ranks: Mapping[int, Activity]) -> float | None:
        """When to worry if nothing moves until then; None if there is no telling."""
        quiet_since = self._last_moved(ranks)
        if self._settings.timeout > 0:
            limit = quiet_since + self._settings.timeout
            if any(activity.beat.last_ns for activity in ranks.values()):
                return limit
            return max(limit, self._started + self._settings.start_grace)
        usual = max((activity.beat.usual_step or 0.0 for activity in ranks.values()), default=0.0)
        if self._warned or not usual:
            return None
        return quiet_since + max(_QUIET_SECONDS, _QUIET_STEPS * usual)

    def _last_moved(self, ranks: Mapping[int, Activity]) -> float:
        return max(self._awake_since, *(activity.last_moved for activity in ranks.values()))


def _behind(ranks: Mapping[int, Activity]) -> tuple[int, ...]:
    furthest = max(activity.beat.steps for activity in ranks.values())
    behind = tuple(r for r, activity in sorted(ranks.items()) if activity.beat.steps < furthest)
    # With a majority behind, the others are merely ahead of what they now wait for.
    return behind if len(behind) * 2 <= len(ranks) else ()
