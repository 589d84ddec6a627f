"""From a verdict and the budgets to an action: one pure function, no I/O, no clock."""

import sys
from dataclasses import dataclass, replace
from enum import Enum

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.exit_codes import ExitCode


class Action(Enum):
    """What every agent of the job does next."""

    RESTART_WORKERS = "restart_workers"
    REPLACE_NODE = "replace_node"
    RESTART_JOB = "restart_job"
    ABORT = "abort"
    FAIL = "fail"
    ADMIT = "admit"


@dataclass(frozen=True, slots=True)
class Counters:
    """The numbers that are the same on every node; workers and events show the first three.

    ``attempt`` counts every start of workers through the whole run; ``restart_count`` the failures
    charged to the restart budget since the last fresh start of the job; ``generation`` the fresh
    starts.
    """

    attempt: int = 0
    restart_count: int = 0
    generation: int = 0
    node_relaunches: int = 0
    fruitless: int = 0
    """Attempts in a row, up to the last one, that ended early and came to nothing."""

    def after(self, action: Action) -> "Counters":
        """The numbers of the attempt that follows ``action``."""
        following = replace(self, attempt=self.attempt + 1)
        match action:
            case Action.RESTART_WORKERS:
                return replace(following, restart_count=self.restart_count + 1)
            case Action.REPLACE_NODE:
                return replace(following, node_relaunches=self.node_relaunches + 1)
            case Action.RESTART_JOB:
                return replace(
                    following, restart_count=0, node_relaunches=0, generation=self.generation + 1
                )
            case _:
                return following


@dataclass(frozen=True, slots=True)
class Limits:
    """How often each scope may be retried."""

    max_restarts: int
    max_node_relaunches: int = 3
    max_job_restarts: int = 3

    @classmethod
    def none(cls) -> "Limits":
        """For somebody who is not bound by budgets."""
        return cls(sys.maxsize, sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class Decision:
    """The one answer to one failure; no ``exit_code`` where the root cause's own applies."""

    action: Action
    reason: str
    exit_code: int | None = None


def decide(verdict: FailoverStrategy, counters: Counters, limits: Limits) -> Decision:
    """The table: what follows from a verdict, given what has been spent."""
    match verdict:
        case FailoverStrategy.NORMAL_FAILOVER:
            if counters.restart_count < limits.max_restarts:
                return Decision(
                    Action.RESTART_WORKERS,
                    _count("restart", counters.restart_count + 1, limits.max_restarts),
                )
            return Decision(Action.FAIL, _spent("restart", limits.max_restarts))
        case FailoverStrategy.NODE_FAILOVER:
            if counters.node_relaunches < limits.max_node_relaunches:
                return Decision(
                    Action.REPLACE_NODE,
                    _count(
                        "node relaunch", counters.node_relaunches + 1, limits.max_node_relaunches
                    ),
                    ExitCode.REPLACE_NODE,
                )
            reason = _spent("node relaunch", limits.max_node_relaunches, "node relaunches")
            return Decision(Action.FAIL, reason, ExitCode.BUDGET_SPENT)
        case FailoverStrategy.GLOBAL_FAILOVER:
            if counters.generation < limits.max_job_restarts:
                return Decision(
                    Action.RESTART_JOB,
                    _count("job restart", counters.generation + 1, limits.max_job_restarts),
                )
            reason = _spent("job restart", limits.max_job_restarts)
            return Decision(Action.FAIL, reason, ExitCode.BUDGET_SPENT)
        case FailoverStrategy.ABORTION_FAILOVER:
            return Decision(Action.ABORT, "aborted by policy; do not retry", ExitCode.ABORTED)


def _count(what: str, number: int, limit: int) -> str:
    return f"{what} {number}" if limit == sys.maxsize else f"{what} {number} of {limit}"


def _spent(what: str, limit: int, many: str | None = None) -> str:
    many = many or f"{what}s"
    if limit == 0:
        return f"no {many} allowed"
    if limit == 1:
        return f"the only {what} is spent"
    return f"all {limit} {many} are spent"
