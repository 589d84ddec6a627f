"""A run at one moment for `dlrover-job top`: its ranks, and what is odd about them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from dlrover_cli import words
from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.diagnosis.run_story import RunStory
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState, usual_rate
from dlrover_cli.telemetry.sample_files import SIGN_OF_LIFE_SECONDS

STALE_SECONDS = 3 * SIGN_OF_LIFE_SECONDS
"""After so long without a sample, nothing is known about a node any more."""

_SLOW = 0.7
_QUIET_SECONDS, _QUIET_STEPS = 30.0, 10.0
# Nodes are not sampled in the same moment: who is this little behind may not be behind at all.
_SKEW_SECONDS, _SKEW_STEPS = 3.0, 2
_ENDS = {RankState.FAILED: 0, RankState.STOPPED: 1}


@dataclass(frozen=True, slots=True)
class ShownNode:
    """One node, and when it was last heard of."""

    agent: str
    host: str
    node_rank: int
    time: float
    is_stale: bool


@dataclass(frozen=True, slots=True)
class ShownRank:
    """One rank, and what is odd about it."""

    rank: RankSample
    host: str
    remark: str
    oddness: tuple[float, ...]
    """The smaller, the odder."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A run at one moment. Times are seconds since 1970."""

    story: RunStory
    now: float
    attempt: int | None
    restart_count: int
    generation: int
    world_size: int
    steps: int
    steps_per_second: float | None
    nodes: tuple[ShownNode, ...]
    ranks: tuple[ShownRank, ...]
    """By their number."""

    @property
    def is_over(self) -> bool:
        return not self.story.is_going_on

    @property
    def missing(self) -> int:
        """How many ranks of the job nothing is known about."""
        return max(0, self.world_size - len(self.ranks))

    def last_failure(self) -> tuple[float, str] | None:
        """When and what, of the latest attempt that failed."""
        for attempt in reversed(self.story.attempts):
            if attempt.failures:
                return attempt.failures[0].at, attempt.failures[0].what
        return None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        failure = self.last_failure()
        return {
            "time": self.now,
            "is_going_on": not self.is_over,
            "attempt": self.attempt,
            "restart_count": self.restart_count,
            "generation": self.generation,
            "world_size": self.world_size,
            "steps": self.steps,
            "steps_per_second": self.steps_per_second,
            "goodput": self.story.costs.goodput,
            "last_failure": None if failure is None else {"at": failure[0], "what": failure[1]},
            "nodes": [asdict(node) for node in self.nodes],
            "ranks": [
                asdict(each.rank) | {"host": each.host, "remark": each.remark or None}
                for each in self.ranks
            ],
        }


def picture_of(story: RunStory, samples: Mapping[str, NodeSample], now: float) -> Picture:
    """The run as its nodes have told it last."""
    latest = max((sample.attempt for sample in samples.values()), default=None)
    current = {name: each for name, each in samples.items() if each.attempt == latest}
    everybody = [rank for sample in current.values() for rank in sample.ranks]
    usual = _Usual.of(everybody)
    nodes, ranks = [], []
    for agent, sample in current.items():
        is_old = not story.is_going_on or now - sample.time > STALE_SECONDS
        is_stale = is_old and not sample.ended
        nodes.append(ShownNode(agent, sample.host, sample.node_rank, sample.time, is_stale))
        when = sample.time if is_stale else now
        ranks += [_shown(rank, sample.host, usual, when, is_stale) for rank in sample.ranks]
    first = next(iter(current.values()), None)
    return Picture(
        story=story,
        now=now,
        attempt=latest,
        restart_count=0 if first is None else first.restart_count,
        generation=0 if first is None else first.generation,
        world_size=0 if first is None else first.world_size,
        steps=usual.furthest,
        steps_per_second=usual_rate(everybody),
        nodes=tuple(sorted(nodes, key=lambda node: node.node_rank)),
        ranks=tuple(sorted(ranks, key=lambda each: each.rank.global_rank)),
    )


def folded(ranks: tuple[ShownRank, ...], room: int) -> tuple[list[ShownRank], str]:
    """As many ranks as there is room for, the odd ones first, and a line about the others."""
    if len(ranks) <= room:
        return list(ranks), ""
    by_oddness = sorted(ranks, key=lambda each: each.oddness)
    shown, others = by_oddness[: max(room - 1, 0)], by_oddness[max(room - 1, 0) :]
    return shown, _in_one_line([each.rank for each in others])


@dataclass(frozen=True, slots=True)
class _Usual:
    """What a rank is compared with."""

    furthest: int
    rate: float | None

    @classmethod
    def of(cls, ranks: Iterable[RankSample]) -> "_Usual":
        known = list(ranks)
        return cls(max((rank.steps for rank in known), default=0), usual_rate(known))


def _shown(rank: RankSample, host: str, usual: _Usual, now: float, is_stale: bool) -> ShownRank:
    remark = _remark(rank, usual, now, is_stale=is_stale)
    return ShownRank(
        rank,
        host,
        remark,
        (
            not remark,
            _ENDS.get(rank.state, 2),
            rank.steps if remark else 0,
            rank.global_rank,
        ),
    )


def _remark(rank: RankSample, usual: _Usual, now: float, *, is_stale: bool) -> str:
    if rank.state is not RankState.RUNNING:
        return ""
    if is_stale:
        return "nothing is heard of its node"
    if rank.at_prompt:
        return "at a debugger's prompt"
    quiet = _quiet_for(rank, now)
    if quiet is not None:
        return f"quiet for {words.duration(quiet)}"
    behind = usual.furthest - rank.steps
    if behind > max(_SKEW_STEPS, _SKEW_SECONDS * (usual.rate or 0.0)):
        return f"{words.counted(behind, 'step')} behind"
    if usual.rate and rank.steps_per_second is not None:
        share = rank.steps_per_second / usual.rate
        if share < _SLOW:
            return f"slow: {share:.0%} of the usual rate"
    if usual.furthest and rank.phase is WorkerPhase.START_UP:
        return "still starting"
    return ""


def _quiet_for(rank: RankSample, now: float) -> float | None:
    """Seconds since it moved, if that is longer than it usually takes."""
    if rank.last_moved is None:
        return None
    step = 1 / rank.steps_per_second if rank.steps_per_second else 0.0
    quiet = now - rank.last_moved
    return quiet if quiet > max(_QUIET_SECONDS, _QUIET_STEPS * min(step, 60.0)) else None


def _in_one_line(ranks: list[RankSample]) -> str:
    steps = [rank.steps for rank in ranks]
    states = sorted({rank.state.value for rank in ranks})
    rates = [rank.steps_per_second for rank in ranks if rank.steps_per_second is not None]
    parts = [f"{words.counted(len(ranks), 'more rank')} {' or '.join(states)}"]
    if max(steps):
        parts.append(f"steps {min(steps):,} to {max(steps):,}")
    if rates:
        parts.append(f"{min(rates):.1f} to {max(rates):.1f} steps/s")
    memory = [rank.memory_bytes for rank in ranks if rank.memory_bytes is not None]
    if memory:
        parts.append(f"{words.memory(int(median(memory)))} each")
    return ", ".join(parts)
