"""From a report to a settlement: the advisers' verdict, the budgets, and where the store is."""

import pytest

from dlrover_cli.agent.judge import Judge
from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Action, Counters, Decision, Limits
from dlrover_cli.testing import exit_failure


class ReplaceTheNode:
    """An adviser that always says so."""

    def advise(self, info: AgentFailureInfo, history: History) -> Verdict | None:
        return Verdict(FailoverStrategy.NODE_FAILOVER, "rule 'sick'", "exit_code = 4")

    def close(self) -> None:
        """Nothing is open."""


def settled(counters: Counters) -> Decision:
    judge = Judge(Chain([ReplaceTheNode()]), Limits(max_restarts=0), lambda: True)
    failure = exit_failure(4).to_json()
    report = {"failure": failure, "active_seconds": 60.0, "lifetime": 60.0}
    return judge.settle(report, counters).decision


@pytest.mark.parametrize(
    "counters, action, words",
    [
        (Counters(), Action.RESTART_JOB, "its node hosts the store, so all restart"),
        (Counters(generation=3), Action.FAIL, "its node hosts the store, so that counts"),
    ],
)
def test_a_node_that_hosts_the_store_takes_the_job_and_its_budget_with_it(
    counters: Counters, action: Action, words: str
) -> None:
    decision = settled(counters)
    assert decision.action is action
    assert decision.reason.endswith(words)
