"""Who is asked about a failure, and what an answer is."""

from dataclasses import dataclass
from typing import Protocol

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy


@dataclass(frozen=True, slots=True)
class Verdict:
    """One adviser's answer about one failure."""

    strategy: FailoverStrategy
    decided_by: str
    """Who said so: ``extension pkg::Cls``, ``rule 'name'``, ``default``, ``person``."""
    reason: str
    backoff: float | None = None
    """Seconds to wait before the next attempt, where the adviser wants a certain time."""
    problems: tuple[str, ...] = ()
    """What went wrong while asking, one sentence each."""
    beyond_budget: bool = False
    """A person who says 'restart' means it, whatever has been spent."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened before: the earlier failures of the run as this agent knows them."""

    failures: tuple[AgentFailureInfo, ...] = ()


class Adviser(Protocol):
    """Has an opinion on failures, or none."""

    def advise(self, info: AgentFailureInfo, history: History) -> Verdict | None:
        """The opinion; None if there is none. May block; never raises."""
        ...

    def close(self) -> None:
        """Release everything. Safe to call again."""
        ...
