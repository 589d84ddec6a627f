"""The table of verdicts and budgets, and the numbers that follow from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.decide import Action, Counters, Decision, Limits, decide

NORMAL = FailoverStrategy.NORMAL_FAILOVER
NODE = FailoverStrategy.NODE_FAILOVER
GLOBAL = FailoverStrategy.GLOBAL_FAILOVER
ABORTION = FailoverStrategy.ABORTION_FAILOVER

small = st.integers(0, 6)
counters = st.builds(
    Counters, attempt=small, restart_count=small, generation=small, node_relaunches=small
)
limits = st.builds(Limits, max_restarts=small, max_node_relaunches=small, max_job_restarts=small)
verdicts = st.sampled_from([NORMAL, NODE, GLOBAL, ABORTION])
goes_on = (Action.RESTART_WORKERS, Action.REPLACE_NODE, Action.RESTART_JOB)


@pytest.mark.parametrize(
    "verdict, spent, action, code",
    [
        (NORMAL, Counters(), Action.RESTART_WORKERS, None),
        (NORMAL, Counters(restart_count=2), Action.FAIL, None),
        (NODE, Counters(restart_count=2), Action.REPLACE_NODE, ExitCode.REPLACE_NODE),
        (NODE, Counters(node_relaunches=3), Action.FAIL, ExitCode.BUDGET_SPENT),
        (GLOBAL, Counters(restart_count=2, node_relaunches=3), Action.RESTART_JOB, None),
        (GLOBAL, Counters(generation=3), Action.FAIL, ExitCode.BUDGET_SPENT),
        (ABORTION, Counters(), Action.ABORT, ExitCode.ABORTED),
    ],
)
def test_the_table(verdict, spent, action, code):
    decision = decide(verdict, spent, Limits(max_restarts=2))
    assert (decision.action, decision.exit_code) == (action, code)


@pytest.mark.parametrize(
    "verdict, spent, most, reason",
    [
        (NORMAL, Counters(restart_count=1), Limits(3), "restart 2 of 3"),
        (NORMAL, Counters(), Limits(0), "no restarts allowed"),
        (NORMAL, Counters(restart_count=3), Limits(3), "all 3 restarts are spent"),
        (NORMAL, Counters(restart_count=1), Limits(1), "the only restart is spent"),
        (NODE, Counters(), Limits(0), "node relaunch 1 of 3"),
        (NODE, Counters(node_relaunches=3), Limits(0), "all 3 node relaunches are spent"),
        (GLOBAL, Counters(generation=1), Limits(0), "job restart 2 of 3"),
        (GLOBAL, Counters(generation=3), Limits(0), "all 3 job restarts are spent"),
        (ABORTION, Counters(), Limits(9), "aborted by policy; do not retry"),
    ],
)
def test_the_reason_is_for_people(verdict, spent, most, reason):
    assert decide(verdict, spent, most).reason == reason


@given(verdicts, counters, limits)
def test_a_verdict_spends_its_own_budget_and_no_other(verdict, spent, most):
    action = decide(verdict, spent, most).action
    after = spent.after(action)
    assert after.attempt == spent.attempt + 1
    match action:
        case Action.RESTART_WORKERS:
            expected = (spent.restart_count + 1, spent.node_relaunches, spent.generation)
        case Action.REPLACE_NODE:
            expected = (spent.restart_count, spent.node_relaunches + 1, spent.generation)
        case Action.RESTART_JOB:
            expected = (0, 0, spent.generation + 1)
        case _:
            expected = (spent.restart_count, spent.node_relaunches, spent.generation)
    assert (after.restart_count, after.node_relaunches, after.generation) == expected


@given(counters, limits)
def test_abortion_never_goes_on(spent, most):
    assert decide(ABORTION, spent, most).action is Action.ABORT


@given(st.lists(verdicts, max_size=400), limits)
def test_every_job_ends_however_it_fails(failures, most):
    """Within the budgets: restarts and relaunches per generation, and so many generations."""
    spent, starts = Counters(), 1
    for verdict in failures:
        decision = decide(verdict, spent, most)
        if decision.action not in goes_on:
            break
        spent = spent.after(decision.action)
        starts += 1
    per_generation = most.max_restarts + most.max_node_relaunches + 1
    assert starts <= per_generation * (most.max_job_restarts + 1)
    assert spent.attempt == starts - 1


@given(verdicts, counters, limits)
def test_only_a_restart_budget_that_is_spent_lets_the_workers_code_through(verdict, spent, most):
    decision = decide(verdict, spent, most)
    if decision.action is Action.FAIL:
        assert (decision.exit_code is None) is (verdict is NORMAL)


def test_membership_changes_cost_nothing():
    before = Counters(attempt=4, restart_count=1, generation=2, node_relaunches=1)
    after = before.after(Action.ADMIT)
    assert after == Counters(attempt=5, restart_count=1, generation=2, node_relaunches=1)


def test_without_limits_nothing_is_ever_spent():
    worn = Counters(attempt=10**9, restart_count=10**9, generation=10**9, node_relaunches=10**9)
    for verdict in (NORMAL, NODE, GLOBAL):
        decision = decide(verdict, worn, Limits.none())
        assert decision.action in goes_on
        assert " of " not in decision.reason


def test_a_decision_is_a_value():
    assert decide(NORMAL, Counters(), Limits(1)) == Decision(
        Action.RESTART_WORKERS, "restart 1 of 1"
    )
