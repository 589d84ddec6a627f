"""What follows from what a person asks for: the decisions, and the answers of a busy agent."""

import pytest

from dlrover_cli.agent.judge import Judge, Settlement
from dlrover_cli.agent.narration import narrate, promise, reply_after
from dlrover_cli.agent.reports import of_request
from dlrover_cli.agent.requests import UNDECIDED, OperatorRequest, Phase, Reply, reply_in
from dlrover_cli.control.wire import By, Command
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Action, Counters, Decision, Limits

ME = By(1000, 17, "ann", "host")
COUNTERS = Counters(attempt=4, restart_count=2, generation=1, node_relaunches=1)


def granted(command: Command, limits: Limits, *, hosts_store: bool = False) -> Settlement:
    judge = Judge(Chain(), limits, lambda: hosts_store)
    report = of_request(OperatorRequest(command, ME), node_rank=1)
    settlement = judge.settle(report, COUNTERS)
    assert Settlement.from_json(settlement.to_json()) == settlement
    return settlement


def test_a_restart_charges_no_budget() -> None:
    settlement = granted(Command.RESTART, Limits(0, 0, 0))
    assert settlement.decision.action is Action.ADMIT
    assert settlement.counters == Counters(5, 2, 1, 1)
    assert narrate(settlement) == (
        "restarted by ann with dlrover-job restart: starting the workers again"
    )


def test_an_abort_ends_with_82() -> None:
    decision = granted(Command.ABORT, Limits(9)).decision
    assert (decision.action, decision.exit_code) == (Action.ABORT, 82)
    assert decision.reason == "aborted by ann with dlrover-job abort"


def test_a_new_node_is_charged_and_is_that_of_whoever_was_asked() -> None:
    settlement = granted(Command.NODE_FAILOVER, Limits(0, max_node_relaunches=2))
    assert settlement.decision.action is Action.REPLACE_NODE
    assert settlement.counters.node_relaunches == 2
    assert settlement.node_rank == 1
    said = promise(settlement, 2, has_manager=False)
    assert said == "node 1 leaves with exit code 81, for another to come (node relaunch 2 of 2)"


def test_a_node_that_hosts_the_store_restarts_the_job_instead() -> None:
    settlement = granted(Command.NODE_FAILOVER, Limits(0), hosts_store=True)
    assert settlement.decision.action is Action.RESTART_JOB
    assert "its node hosts the store, so all restart" in promise(settlement, 2, has_manager=False)


def test_a_new_node_beyond_the_budget_is_not_promised() -> None:
    settlement = granted(Command.NODE_FAILOVER, Limits(0, max_node_relaunches=1))
    assert settlement.decision.action is Action.FAIL  # which the observer declines
    assert promise(settlement, 1, has_manager=False) == (
        "nothing is done, since the job would fail (the only node relaunch is spent)"
    )


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.takes_requests])
@pytest.mark.parametrize("command", [c for c in Command if c.changes_the_job])
def test_a_busy_agent_says_what_it_is_busy_with(phase: Phase, command: Command) -> None:
    reply = reply_in(phase, command)
    assert reply.says.startswith(phase.value)
    if command is Command.ABORT:
        assert reply.done == (phase is not Phase.ENDING)
    elif command is Command.NODE_FAILOVER:
        assert not reply.done
    else:
        assert reply.done == phase.leads_to_an_attempt


def test_only_the_first_reply_stands() -> None:
    request = OperatorRequest(Command.RESTART, ME)
    assert request.wait(0) is None
    assert request.reply(Reply(True, "yes"))
    assert not request.reply(Reply(False, "no"))
    assert request.wait(0) == Reply(True, "yes")


def test_what_is_taken_is_replied_to_when_it_is_decided_and_not_declined_meanwhile() -> None:
    request = OperatorRequest(Command.RESTART, ME)
    assert request.take()
    assert request.give_up(Reply(False, "nothing is done")) == UNDECIDED
    assert request.reply(Reply(True, "done"))
    assert request.give_up(Reply(False, "nothing is done")) == Reply(True, "done")


def test_what_was_declined_cannot_be_taken() -> None:
    request = OperatorRequest(Command.RESTART, ME)
    assert request.give_up(Reply(False, "nothing is done")) == Reply(False, "nothing is done")
    assert not request.take()


def test_a_request_that_was_granted_is_answered_with_what_follows() -> None:
    request = OperatorRequest(Command.RESTART, ME)
    settlement = Judge(Chain(), Limits(0), lambda: False).settle(of_request(request, 1), COUNTERS)
    reply = reply_after(request, settlement, 1, 2, has_manager=False)
    assert reply.done
    assert "as attempt 5; no restart is charged" in reply.says


@pytest.mark.parametrize("action", [Action.RESTART_WORKERS, Action.FAIL, Action.REPLACE_NODE])
def test_who_came_a_moment_too_late_hears_what_was_decided_instead(action: Action) -> None:
    settlement = Settlement(Decision(action, "restart 1 of 3"), COUNTERS)
    for command in (Command.RESTART, Command.NODE_FAILOVER):
        request = OperatorRequest(command, ME)
        reply = reply_after(request, settlement, 0, 2, has_manager=False)
        assert reply.says.startswith("something else was decided a moment before: restart 1 of 3")
        assert reply.done == (command is Command.RESTART and action is Action.RESTART_WORKERS)
    other = OperatorRequest(Command.NODE_FAILOVER, ME)
    reply = reply_after(other, granted(Command.NODE_FAILOVER, Limits(0)), 0, 2, has_manager=False)
    assert not reply.done  # another node is replaced
