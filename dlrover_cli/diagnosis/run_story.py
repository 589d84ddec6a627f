"""The story of a run, for whoever wants to know why: attempts, interruptions, what they cost."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.verdict import Verdict


class AttemptEnd(Enum):
    """How the workers of one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Nothing of its own failed: nodes came or went, or somebody wanted it to end."""
    RUNNING = "running"
    UNKNOWN = "unknown"
    """Nobody has written it down."""


@dataclass(frozen=True, slots=True)
class About:
    """Which run it is, and how far it has come."""

    run_id: str
    name: str
    platform: str
    engine: str
    state: RunState
    exit_code: int | None
    reason: str
    submitted: float
    started: float | None
    ended: float | None
    directory: Path


@dataclass(frozen=True, slots=True)
class RankSpan:
    """One worker of one attempt."""

    rank: int
    node: str
    pid: int | None
    started: float
    ended: float | None
    """None if nobody has seen its end."""
    status: int | None
    """Its exit code; negative for a signal."""


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """A failure as one node has written it down."""

    node: str
    number: int | None
    rank: int | None
    kind: str
    at: float
    """When it happened: of a hang, when the last worker stopped to move."""
    what: str
    """In words."""
    traceback: str = ""
    stacks: tuple[tuple[str, str], ...] = ()
    """Rank and stack, where they were asked for."""
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class DecisionMade:
    """What followed, and who wanted it so."""

    at: float
    action: str
    reason: str
    strategy: str
    decided_by: str
    verdict_reason: str
    problems: tuple[str, ...]
    """What was wrong with those who were asked, such as an extension."""
    seconds: float | None
    backoff: float | None


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A while in which the steps came at one rate."""

    since: float
    until: float
    steps: float

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / (self.until - self.since)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an attempt went, where somebody counted its steps."""

    steps: int | None = None
    """Of the worker that came furthest, in its last sample."""
    steps_per_second: float | None = None
    """From its first steps to its last ones."""
    spans: tuple[StepSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of workers, on all nodes together."""

    launch: int
    """Which time of the job it belongs to; a periodic job has several."""
    number: int
    started: float
    """When the first of its workers ran, or its nodes met."""
    ready: float | None
    """When the workers of the last node ran; None if some never did."""
    ended: float | None
    """When it stopped to be of use: its failure, or its last worker's good end."""
    end: AttemptEnd
    why: str
    world_size: int | None
    nodes: tuple[str, ...]
    ranks: tuple[RankSpan, ...]
    restart_count: int | None
    generation: int | None
    failures: tuple[FailureSeen, ...]
    """The root cause first."""
    decision: DecisionMade | None
    pace: Pace = field(default_factory=Pace)

    @property
    def steps(self) -> int | None:
        """How many it has done: as its failure says, or its last sample."""
        told = self.failures[0].steps if self.failures else None
        return self.pace.steps if told is None else told

    @property
    def ran(self) -> float:
        """Seconds for which all workers ran."""
        if self.ready is None or self.ended is None:
            return 0.0
        return max(0.0, self.ended - self.ready)


@dataclass(frozen=True, slots=True)
class Interruption:
    """Time that was lost, and to what."""

    launch: int
    attempt: int
    at: float
    seconds: float
    """Until all workers of the next attempt ran, or the run was over."""
    is_failure: bool
    what: str
    next_attempt: int | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Where the time went, in seconds; the parts add up to `wall`."""

    wall: float
    starting: float
    useful: float
    lost: float
    ending: float
    goodput: float | None
    """useful / wall; None if nothing is known about workers, or not how long the last ones ran."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a person should know of."""

    at: float
    what: str
    details: str = ""
    """Such as stacks."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One time that the job ran; most jobs run once."""

    number: int
    started: float
    ended: float
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RunStory:
    """All of it."""

    about: About
    is_going_on: bool
    outcome: str
    reason: str
    hint: str
    verdict: Verdict | None
    launches: tuple[Launch, ...]
    attempts: tuple[Attempt, ...]
    interruptions: tuple[Interruption, ...]
    costs: Costs
    warnings: tuple[Remark, ...]
    history: tuple[Remark, ...]
    """The life of the run as a whole."""
    unreadable: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs. Times are seconds since 1970."""
        return {
            "is_going_on": self.is_going_on,
            "outcome": self.outcome or None,
            "reason": self.reason,
            "hint": self.hint or None,
            "verdict": None if self.verdict is None else self.verdict.to_json(),
            "costs": asdict(self.costs),
            "launches": [asdict(launch) for launch in self.launches],
            "attempts": [_attempt(attempt) for attempt in self.attempts],
            "interruptions": [asdict(each) for each in self.interruptions],
            "warnings": [asdict(remark) for remark in self.warnings],
            "history": [asdict(remark) for remark in self.history],
            "unreadable": list(self.unreadable),
        }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    failures = [asdict(failure) | {"stacks": dict(failure.stacks)} for failure in attempt.failures]
    return asdict(attempt) | {
        "end": attempt.end.value,
        "ran": attempt.ran,
        "steps": attempt.steps,
        "failures": failures,
        "steps_per_second": attempt.pace.steps_per_second,
        "pace": [
            {"since": span.since, "until": span.until, "steps_per_second": span.rate}
            for span in attempt.pace.spans
        ],
    }
