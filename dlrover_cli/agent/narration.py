"""One line for people about every decision."""

from dlrover_cli.agent.facts import describe_end
from dlrover_cli.agent.judge import Settlement
from dlrover_cli.failover.decide import Action

_FOLLOWS = {
    Action.RESTART_WORKERS: "restarting all workers",
    Action.RESTART_JOB: "restarting the job",
    Action.REPLACE_NODE: "replacing the node",
    Action.ABORT: "aborting the job",
    Action.FAIL: "the job fails",
    Action.ADMIT: "starting the workers again",
}


def narrate(settlement: Settlement) -> str:
    """What happened, what follows, who decided so and why."""
    decision, failure = settlement.decision, settlement.failure
    follows = _FOLLOWS[decision.action]
    if failure is None:
        return f"{decision.reason}: {follows}"
    root = failure.root_cause
    what = f"the workers of {failure.host} failed"
    if root is not None:
        what = f"rank {root.global_rank} on {failure.host} {describe_end(root)}"
    because = reason_of(settlement)
    if settlement.backoff > 0 and decision.action not in (Action.FAIL, Action.ABORT):
        because = f"{because}; after {settlement.backoff:g} s"
    return f"{what}: {follows} ({because})"


def outcome_of(settlement: Settlement) -> str:
    """What follows, who decided so and why."""
    return f"{_FOLLOWS[settlement.decision.action]}: {reason_of(settlement)}"


def reason_of(settlement: Settlement) -> str:
    """Why this follows: who said so with which words, and what the budgets say."""
    verdict, reason = settlement.verdict, settlement.decision.reason
    if verdict is None or verdict.decided_by == "default":
        return reason
    return f"{verdict.decided_by}: {verdict.reason}; {reason}"
