"""One line for people about every decision."""

from dlrover_cli.agent.facts import describe_end
from dlrover_cli.agent.judge import Settlement
from dlrover_cli.agent.reports import of_request
from dlrover_cli.agent.requests import OperatorRequest, Reply
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.control.wire import Command
from dlrover_cli.failover.decide import Action

_FOLLOWS = {
    Action.RESTART_WORKERS: "restarting all workers",
    Action.RESTART_JOB: "restarting the job",
    Action.REPLACE_NODE: "replacing the node",
    Action.ABORT: "aborting the job",
    Action.FAIL: "the job fails",
    Action.ADMIT: "starting the workers again",
}

_RESTARTS = (Action.RESTART_WORKERS, Action.RESTART_JOB, Action.ADMIT)


def narrate(settlement: Settlement) -> str:
    """What happened, what follows, who decided so and why."""
    decision, failure = settlement.decision, settlement.failure
    follows = _FOLLOWS[decision.action]
    if failure is None:
        return f"{decision.reason}: {follows}"
    because = reason_of(settlement)
    if settlement.backoff > 0 and decision.action not in (Action.FAIL, Action.ABORT):
        because = f"{because}; after {settlement.backoff:g} s"
    return f"{cause_of(failure)}: {follows} ({because})"


def cause_of(failure: AgentFailureInfo) -> str:
    """What happened: which worker ended where, and how."""
    root = failure.root_cause
    if root is None:
        return f"the workers of {failure.host} failed"
    return f"rank {root.global_rank} on {failure.host} {describe_end(root)}"


def promise(settlement: Settlement, nodes: int, *, has_manager: bool) -> str:
    """What follows from a request, for whoever has asked."""
    decision = settlement.decision
    everywhere = "this node" if nodes == 1 else f"all {nodes} nodes"
    match decision.action:
        case Action.ADMIT:
            attempt = settlement.counters.attempt
            return (
                f"the workers of {everywhere} are stopped and started again as attempt {attempt}; "
                "no restart is charged"
            )
        case Action.ABORT:
            return (
                f"the workers of {everywhere} are stopped; the job ends with exit code 82, "
                "and nothing retries"
            )
        case Action.REPLACE_NODE if nodes == 1 and not has_manager:
            follows = "the launcher starts itself anew"
        case Action.REPLACE_NODE if has_manager:
            follows = f"node {settlement.node_rank} leaves, and the manager replaces it"
        case Action.REPLACE_NODE:
            follows = f"node {settlement.node_rank} leaves with exit code 81, for another to come"
        case Action.RESTART_JOB:
            follows = f"the job is restarted on {everywhere}"
        case _:
            follows = "nothing is done, since the job would fail"
    return f"{follows} ({decision.reason.partition('; ')[2] or decision.reason})"


def reply_after(
    request: OperatorRequest, settlement: Settlement, rank: int, nodes: int, *, has_manager: bool
) -> Reply:
    """What is said to whoever asked for something of a node, now that the nodes have agreed."""
    if settlement.request == of_request(request, rank)["request"]:
        return Reply(done=True, says=promise(settlement, nodes, has_manager=has_manager))
    is_restart = request.command is Command.RESTART and settlement.decision.action in _RESTARTS
    return Reply(
        done=is_restart,
        says=f"something else was decided a moment before: {narrate(settlement)}",
    )


def outcome_of(settlement: Settlement) -> str:
    """What follows, who decided so and why."""
    return f"{_FOLLOWS[settlement.decision.action]}: {reason_of(settlement)}"


def reason_of(settlement: Settlement) -> str:
    """Why this follows: who said so with which words, and what the budgets say."""
    verdict, reason = settlement.verdict, settlement.decision.reason
    if verdict is None or verdict.decided_by == "default":
        return reason
    return f"{verdict.decided_by}: {verdict.reason}; {reason}"
