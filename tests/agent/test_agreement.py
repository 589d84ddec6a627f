"""Agents come to one decision, over stores of every kind, whoever dies on the way."""

import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import PrefixStore, TCPStore

from dlrover_cli.agent import agreement as agreement_module
from dlrover_cli.agent.agreement import (
    WEIGHT_CAUSE,
    WEIGHT_COLLATERAL,
    WEIGHT_MEMBERSHIP,
    ControlStoreLost,
    LocalAgreement,
    PeersDone,
    PeersFrozen,
    StoreAgreement,
)
from dlrover_cli.workers.inbox import Inbox
from tests.agent.stores import KINDS, shared_store

CAUSE = {"weight": WEIGHT_CAUSE, "name": "cause"}
COLLATERAL = {"weight": WEIGHT_COLLATERAL, "name": "collateral"}
MEMBERSHIP = {"weight": WEIGHT_MEMBERSHIP, "name": "membership"}
SECONDS = 30.0


class Agent:
    """One node's side of an agreement, with a thread to block in."""

    def __init__(self, client, epoch, rank, world_size):
        self.rank = rank
        self.inbox = Inbox()
        self._client = client  # a store of Python needs somebody in Python who holds it
        store = PrefixStore(f"rounds/{epoch}", client)
        self.agreement = StoreAgreement(self.inbox, store, rank, world_size)
        self.asked = []
        self.decision = None
        self.error = None
        self._thread = None

    def decide(self, report):
        self.asked.append(report)
        return {"decided by": self.rank, "about": report["name"]}

    def settle(self, timeout=SECONDS, decide=None):
        """Begin to settle; `settled` waits for the outcome."""

        def run():
            try:
                self.decision = self.agreement.settle(decide or self.decide, timeout)
            except ControlStoreLost as lost:
                self.error = lost

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def settled(self):
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), f"agent {self.rank} does not come to a decision"
        return self.decision

    def next(self, seconds=SECONDS):
        return self.inbox.next(time.monotonic() + seconds)


@pytest.fixture
def round_of(tmp_path):
    """`round_of(count, kind="tcp") -> agents`; each has a store client of its own."""
    stack = []
    agents = []

    def make(count, kind="tcp", epoch="1"):
        if kind not in dict(stack):
            context = shared_store(kind, tmp_path, 99)
            stack.append((kind, (context, context.__enter__())))
        client = dict(stack)[kind][1]
        made = [Agent(client(), epoch, rank, count) for rank in range(count)]
        agents.extend(made)
        return made

    yield make
    for _, (context, _) in stack:
        context.__exit__(None, None, None)
    for agent in agents:
        agent.inbox.close()


def settle_all(agents):
    for agent in agents:
        agent.settle()
    return [agent.settled() for agent in agents]


# ---- one decision ------------------------------------------------------------------------------


def test_who_waits_for_a_better_report_can_bring_it_and_use_its_store_meanwhile(round_of):
    survivor, lost = round_of(2)
    survivor.agreement._patience = SECONDS
    survivor.agreement.watch()
    started = time.monotonic()
    survivor.agreement.add_report(COLLATERAL)
    assert isinstance(survivor.next(), PeersFrozen)
    survivor.settle()
    survivor.agreement.add_report(CAUSE)  # the manager says that the other node is gone
    assert survivor._client.add("anything", 1) == 1
    assert survivor.settled() == {"decided by": 0, "about": "cause"}
    assert time.monotonic() - started < SECONDS / 2
    assert lost.asked == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 5])
def test_everybody_adopts_the_decision_of_the_one_who_reported(round_of, kind, count):
    agents = round_of(count, kind)
    agents[-1].agreement.add_report(CAUSE)
    decisions = settle_all(agents)
    assert decisions == [{"decided by": count - 1, "about": "cause"}] * count
    assert [len(agent.asked) for agent in agents] == [0] * (count - 1) + [1]
    assert sorted(agent.agreement.is_first() for agent in agents) == [False] * (count - 1) + [True]


@pytest.mark.parametrize("kind", KINDS)
def test_reports_at_the_same_time_lead_to_one_decision(round_of, kind):
    """Many rounds in one store, in which every agent reports at once, cause or consequence."""
    for epoch in range(6):
        agents = round_of(4, kind, epoch=str(epoch))
        begin = threading.Barrier(len(agents))
        reporters = [
            threading.Thread(
                target=lambda agent=agent, begin=begin: (
                    begin.wait(),
                    agent.agreement.add_report(CAUSE if agent.rank % 2 else COLLATERAL),
                    agent.settle(),
                )
            )
            for agent in agents
        ]
        for reporter in reporters:
            reporter.start()
        for reporter in reporters:
            reporter.join()
        decisions = [agent.settled() for agent in agents]
        assert all(decision == decisions[0] for decision in decisions)
        assert decisions[0]["about"] == "cause"
        assert sum(len(agent.asked) for agent in agents) == 1


def test_a_cause_is_decided_on_at_once(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "BETTER_REPORT_SECONDS", 60.0)
    agents = round_of(2)
    agents[0].agreement.add_report(CAUSE)
    assert settle_all(agents)[0]["about"] == "cause"


def test_a_cause_wins_over_a_consequence_that_came_first(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "BETTER_REPORT_SECONDS", 60.0)
    agents = round_of(3)
    agents[0].agreement.add_report(COLLATERAL)
    agents[0].settle()
    agents[1].agreement.add_report(COLLATERAL)
    agents[1].settle()
    agents[2].agreement.add_report(CAUSE)  # ends the patience of the first one
    agents[2].settle()
    assert [agent.settled() for agent in agents] == [{"decided by": 2, "about": "cause"}] * 3


def test_of_several_causes_the_first_one_counts(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "BETTER_REPORT_SECONDS", 60.0)
    agents = round_of(4)
    agents[3].agreement.add_report(COLLATERAL)
    agents[1].agreement.add_report(CAUSE)
    agents[2].agreement.add_report(CAUSE)
    agents[0].agreement.add_report(MEMBERSHIP)
    assert settle_all(agents) == [{"decided by": 1, "about": "cause"}] * 4


def test_a_consequence_without_a_cause_is_decided_on_after_a_moment(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "BETTER_REPORT_SECONDS", 0.1)
    agents = round_of(2)
    agents[1].agreement.add_report(COLLATERAL)
    assert settle_all(agents) == [{"decided by": 1, "about": "collateral"}] * 2


def test_waiting_nodes_do_not_hide_a_failure(round_of):
    agents = round_of(2)
    agents[0].agreement.add_report(MEMBERSHIP)
    agents[1].agreement.add_report(CAUSE)
    assert settle_all(agents) == [{"decided by": 1, "about": "cause"}] * 2


def test_a_local_agreement_decides_on_the_weightiest_report(round_of):
    inbox = Inbox()
    agreement = LocalAgreement(inbox)
    agreement.add_report(MEMBERSHIP)
    agreement.add_report(CAUSE)
    agreement.add_report({**CAUSE, "name": "later"})
    assert agreement.settle(lambda report: {"about": report["name"]}, 1.0) == {"about": "cause"}
    agreement.finish()
    assert inbox.next(0.0) == PeersDone(agreement)
    agreement.leave()
    inbox.close()


# ---- waking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_wakes_everybody(round_of, kind):
    agents = round_of(3, kind)
    for agent in agents:
        agent.agreement.watch()
    agents[1].agreement.add_report(CAUSE)
    assert [agent.next() for agent in agents] == [PeersFrozen(agent.agreement) for agent in agents]
    assert settle_all(agents) == [{"decided by": 1, "about": "cause"}] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_one_to_finish_wakes_everybody(round_of, kind):
    agents = round_of(3, kind)
    for agent in agents:
        agent.agreement.watch()
    agents[2].agreement.finish()
    agents[0].agreement.finish()
    assert agents[0].next(0.2) is None
    agents[1].agreement.finish()
    assert [agent.next() for agent in agents] == [PeersDone(agent.agreement) for agent in agents]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_while_others_have_finished_wakes_them_too(round_of, kind):
    agents = round_of(2, kind)
    for agent in agents:
        agent.agreement.watch()
    agents[0].agreement.finish()
    agents[1].agreement.add_report(CAUSE)
    assert [agent.next() for agent in agents] == [PeersFrozen(agent.agreement) for agent in agents]


@pytest.mark.parametrize("kind", KINDS)
def test_an_earlier_round_in_the_same_store_means_nothing(round_of, kind):
    """Reports, decisions and successes of one round never show in the next."""
    earlier = round_of(2, kind, epoch="1")
    earlier[0].agreement.add_report(CAUSE)
    settle_all(earlier)
    for agent in earlier:
        agent.agreement.finish()
    agents = round_of(2, kind, epoch="2")
    for agent in agents:
        agent.agreement.watch()
    assert agents[0].next(0.3) is None
    agents[0].agreement.add_report(MEMBERSHIP)
    assert settle_all(agents) == [{"decided by": 0, "about": "membership"}] * 2


# ---- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_leaves_before_the_others_are_done_reading(round_of, kind, monkeypatch):
    monkeypatch.setattr(agreement_module, "_LEAVE_SECONDS", 60.0)
    agents = round_of(3, kind)
    threads = [threading.Thread(target=agent.agreement.leave) for agent in agents]
    for thread in threads[:2]:
        thread.start()
    threads[0].join(0.1)
    assert threads[0].is_alive()
    threads[2].start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_missing_agent_does_not_hold_up_the_leaving_for_long(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "_LEAVE_SECONDS", 0.1)
    agents = round_of(2)
    began = time.monotonic()
    agents[0].agreement.leave()
    assert 0.09 <= time.monotonic() - began < 10  # stores count in whole milliseconds


# ---- deaths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_arbiter_that_dies_is_replaced(round_of, kind):
    agents = round_of(4, kind)
    agents[0].agreement.add_report(CAUSE)  # and is never heard of again
    survivors = agents[1:]
    for agent in survivors:
        agent.settle(timeout=0.3)
    decisions = [agent.settled() for agent in survivors]
    assert decisions == [decisions[0]] * 3
    assert decisions[0]["about"] == "cause"
    assert sum(len(agent.asked) for agent in survivors) == 1


def test_a_decider_that_dies_is_replaced(round_of):
    agents = round_of(4)
    agents[0].agreement.add_report(COLLATERAL)
    agents[1].agreement.add_report(CAUSE)  # is chosen, and is never heard of again
    survivors = [agents[0], *agents[2:]]
    for agent in survivors:
        agent.settle(timeout=0.5)
    decisions = [agent.settled() for agent in survivors]
    assert decisions == [decisions[0]] * 3
    assert decisions[0]["about"] == "cause"
    assert sum(len(agent.asked) for agent in survivors) == 1


def test_a_decider_that_was_given_up_does_not_change_the_decision(round_of):
    """An extension that takes too long answers after the others have decided without it."""
    agents = round_of(3)
    replaced, answered = threading.Event(), threading.Event()

    def slow(report):
        assert replaced.wait(SECONDS)
        return {"decided by": 0, "about": "too late"}

    agents[0].agreement.add_report(CAUSE)
    agents[0].settle(decide=slow)
    agents[1].settle(timeout=0.3)
    first = agents[1].settled()
    replaced.set()
    late = agents[0].settled()
    answered.set()
    agents[2].settle()
    assert [late, agents[2].settled()] == [first, first]


def test_a_reporter_that_dies_between_number_and_report_does_not_block_the_others(round_of):
    agents = round_of(3)
    agents[0].agreement._store.add("reports", 1)  # it died before it could write its report
    agents[1].agreement.add_report(CAUSE)
    survivors = agents[1:]
    for agent in survivors:
        agent.settle(timeout=0.3)
    decisions = [agent.settled() for agent in survivors]
    assert decisions == [decisions[0]] * 2
    assert decisions[0]["about"] == "cause"


def test_a_gap_in_the_reports_does_not_hide_a_later_cause(round_of, monkeypatch):
    monkeypatch.setattr(agreement_module, "BETTER_REPORT_SECONDS", 0.5)
    agents = round_of(3)
    agents[0].agreement.add_report(COLLATERAL)
    agents[0].agreement._store.add("reports", 1)  # number 2 is taken and never written
    agents[2].agreement.add_report(CAUSE)
    assert settle_all(agents) == [{"decided by": 2, "about": "cause"}] * 3


# ---- a store that goes away --------------------------------------------------------------------


def test_a_lost_store_is_noticed_by_everybody_who_waits():
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=SECONDS)
    clients = [
        TCPStore("127.0.0.1", server.port, is_master=False, timeout=timeout) for _ in range(2)
    ]
    agents = [Agent(client, "1", rank, 3) for rank, client in enumerate(clients)]
    agents[0].agreement.watch()
    for agent in agents:
        agent.settle()  # nobody has reported anything
    began = time.monotonic()
    del server
    for agent in agents:
        agent.settled()
        assert agent.decision is None
        assert isinstance(agent.error, ControlStoreLost)
    assert time.monotonic() - began < 15
    for call in (
        lambda: agents[0].agreement.add_report(CAUSE),
        agents[0].agreement.finish,
        lambda: agents[0].agreement.settle(agents[0].decide, 1.0),
    ):
        with pytest.raises(ControlStoreLost, match="control store is lost"):
            call()
    assert all(agent.agreement.is_first() for agent in agents)
    agents[0].agreement.leave()  # there is nothing left to leave, and nobody to tell
    assert agents[0].next(0.1) is None
    for agent in agents:
        agent.inbox.close()


@pytest.mark.full
def test_without_any_decision_the_wait_ends(round_of):
    """The stand-in itself has died."""
    agents = round_of(2)
    agents[0].agreement.add_report(CAUSE)
    agents[0].agreement._store.add("stand_in", 1)
    began = time.monotonic()
    with pytest.raises(ControlStoreLost, match="no agent of the round came to a decision"):
        agents[1].agreement.settle(agents[1].decide, 0.1)
    assert time.monotonic() - began < 20
