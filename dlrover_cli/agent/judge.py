"""What a node makes of the report that was chosen for the whole job: one settlement for everybody.

The node that wrote the report asks its advisers and applies the budgets. The outcome is plain data:
it goes into the store, and every node, this one included, acts on what it reads there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from dlrover_cli.agent.agreement import Report
from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, FailureKind
from dlrover_cli.control.wire import Command
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.backoff import backoff
from dlrover_cli.failover.budget import BudgetReset, Progress, refilled
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Action, Counters, Decision, Limits, decide


@dataclass(frozen=True, slots=True)
class Settlement:
    """One decision with everything that belongs to it, the same on every node."""

    decision: Decision
    counters: Counters
    """The numbers of the attempt that follows, if one does."""
    failure: AgentFailureInfo | None = None
    verdict: Verdict | None = None
    seconds: float = 0.0
    """How long the advisers took."""
    backoff: float = 0.0
    """How long everybody waits before the next attempt."""
    request: Mapping[str, Any] | None = None
    """Who asked for it, if it is no answer to a failure."""

    @property
    def node_rank(self) -> int | None:
        """The node that it is about."""
        if self.failure is not None:
            return self.failure.node_rank
        return None if self.request is None else int(self.request["node_rank"])

    def to_json(self) -> Report:
        return {
            "action": self.decision.action.value,
            "reason": self.decision.reason,
            "exit_code": self.decision.exit_code,
            "counters": asdict(self.counters),
            "failure": None if self.failure is None else self.failure.to_json(),
            "verdict": None if self.verdict is None else _verdict_to_json(self.verdict),
            "seconds": self.seconds,
            "backoff": self.backoff,
            "request": self.request,
        }

    @classmethod
    def from_json(cls, data: Report) -> Self:
        return cls(
            Decision(Action(data["action"]), data["reason"], data["exit_code"]),
            Counters(**data["counters"]),
            None if data["failure"] is None else AgentFailureInfo.from_json(data["failure"]),
            None if data["verdict"] is None else _verdict_from_json(data["verdict"]),
            data["seconds"],
            data["backoff"],
            data.get("request"),
        )


@dataclass(slots=True)
class Judge:
    """Settles reports. Remembers the failures that were settled, for rules that count them."""

    chain: Chain
    limits: Limits
    hosts_control_store: Callable[[], bool]
    """Whether the other nodes lose the store if this node goes."""
    budget_reset: BudgetReset | None = None
    history: tuple[AgentFailureInfo, ...] = ()

    def settle(self, report: Report, counters: Counters) -> Settlement:
        """Decide on a report. Asks the advisers, so it may block."""
        if "request" in report:
            return self.grant(report["request"], counters)
        if "failure" not in report:
            decision = Decision(Action.ADMIT, report["reason"])
            return Settlement(decision, counters.after(Action.ADMIT))
        info = AgentFailureInfo.from_json(report["failure"])
        started = time.monotonic()
        verdict = self.chain.ask(info, History(self.history))
        seconds = time.monotonic() - started
        progress = Progress(info.steps, report["active_seconds"])
        counters = refilled(counters, self.budget_reset, progress)
        decision = self._decide(report, info, verdict, counters)
        wait = backoff(
            lifetime=report["lifetime"],
            steps=info.steps,
            fruitless_before=counters.fruitless,
            asked=verdict.backoff,
        )
        counters = replace(counters.after(decision.action), fruitless=wait.fruitless_in_a_row)
        return Settlement(decision, counters, info, verdict, seconds, wait.seconds)

    def grant(self, request: Mapping[str, Any], counters: Counters) -> Settlement:
        """What follows from what a person asks for: only a new node is charged to a budget."""
        reason = str(request["reason"])
        match Command(request["command"]):
            case Command.ABORT:
                decision = Decision(Action.ABORT, reason, ExitCode.ABORTED)
            case Command.NODE_FAILOVER:
                decided = self._replace_or_restart(
                    decide(FailoverStrategy.NODE_FAILOVER, counters, self.limits),
                    counters,
                    self.limits,
                )
                decision = replace(decided, reason=f"{reason}; {decided.reason}")
            case _:
                decision = Decision(Action.ADMIT, reason)
        return Settlement(decision, counters.after(decision.action), request=request)

    def remember(self, failure: AgentFailureInfo) -> None:
        """Add a failure that the job has settled, wherever it happened."""
        self.history = (*self.history, failure)

    def _decide(
        self, report: Report, info: AgentFailureInfo, verdict: Verdict, counters: Counters
    ) -> Decision:
        strategy = verdict.strategy
        if report.get("stuck") and strategy is FailoverStrategy.NORMAL_FAILOVER:
            # The stuck process holds its device; a new worker beside it would fare no better.
            return Decision(Action.FAIL, "a worker is stuck in the kernel; a restart cannot help")
        limits = Limits.none() if verdict.beyond_budget else self.limits
        decision = self._replace_or_restart(decide(strategy, counters, limits), counters, limits)
        if (
            info.kind is FailureKind.HANG
            and decision.action is Action.FAIL
            and decision.exit_code is None
        ):
            return replace(decision, exit_code=ExitCode.HANG)
        return decision

    def _replace_or_restart(
        self, decision: Decision, counters: Counters, limits: Limits
    ) -> Decision:
        """A node that the others need for their store cannot be replaced without them."""
        if decision.action is not Action.REPLACE_NODE or not self.hosts_control_store():
            return decision
        decision = decide(FailoverStrategy.GLOBAL_FAILOVER, counters, limits)
        follows = "all restart" if decision.action is Action.RESTART_JOB else "that counts"
        return replace(
            decision, reason=f"{decision.reason}; its node hosts the store, so {follows}"
        )


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "strategy": verdict.strategy.value,
        "decided_by": verdict.decided_by,
        "reason": verdict.reason,
        "backoff": verdict.backoff,
        "problems": list(verdict.problems),
    }


def _verdict_from_json(data: Mapping[str, Any]) -> Verdict:
    return Verdict(
        FailoverStrategy(data["strategy"]),
        data["decided_by"],
        data["reason"],
        data["backoff"],
        tuple(data["problems"]),
    )
