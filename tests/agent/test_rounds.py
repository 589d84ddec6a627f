"""Joining a round: real stores, agents in threads, and leftovers of earlier rounds."""

import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from dlrover_cli.agent.ranks import Hello
from dlrover_cli.agent.rounds import StoreForWorkers, forget_earlier_rounds, join
from dlrover_cli.failover.decide import Counters
from tests.agent.stores import KINDS, shared_store

TIMEOUT = 20.0


class Handler(RendezvousHandler):
    """Knows its rank and its store from the start, as a user's own might."""

    def __init__(self, store, rank, world_size, *, agent_store=True, address=None, tuples=False):
        self.store = store
        self.rank = rank
        self.world_size = world_size
        self.address = address
        self._agent_store = agent_store
        self._tuples = tuples

    @property
    def use_agent_store(self):
        return self._agent_store

    def next_rendezvous(self):
        if self._tuples:
            return self.store, self.rank, self.world_size
        return RendezvousInfo(self.store, self.rank, self.world_size, self.address)

    def get_backend(self):
        return "test"

    def get_run_id(self):
        return "run"

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return 0

    def shutdown(self):
        return True


class Node:
    """One agent's side: a handler, what it keeps between rounds, and a thread to join in."""

    def __init__(self, handler, hello):
        self.handler = handler
        self.hello = hello
        self.stores = StoreForWorkers(handler, None, None)
        self.round = None
        self.error = None
        self._thread = None

    def join(self, timeout=TIMEOUT):
        def run():
            try:
                self.round = join(self.handler, self.hello, self.stores, "127.0.0.1", timeout)
            except RuntimeError as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def joined(self, seconds=TIMEOUT + 10):
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "does not come back from the rendezvous"
        if self.error is not None:
            raise self.error
        return self.round


@pytest.fixture
def store(tmp_path, request):
    with shared_store(getattr(request, "param", "tcp"), tmp_path, 99) as client:
        yield client


def nodes_of(store, hellos):
    return [Node(Handler(store(), rank, len(hellos)), hello) for rank, hello in enumerate(hellos)]


def join_all(nodes):
    for node in nodes:
        node.join()
    return [node.joined() for node in nodes]


def hello(count=2, role="default", **counters):
    return Hello(role, count, Counters(**counters))


@pytest.mark.parametrize("store", KINDS, indirect=True)
@pytest.mark.parametrize("count", [2, 5])
def test_everybody_learns_the_same_about_the_round(store, count):
    nodes = nodes_of(store, [hello(rank + 1) for rank in range(count)])
    rounds = join_all(nodes)
    assert [round_.rank for round_ in rounds] == list(range(count))
    firsts = [round_.placement.first_global_rank for round_ in rounds]
    assert firsts == [sum(range(1, rank + 1)) for rank in range(count)]
    assert {round_.placement.world_size for round_ in rounds} == {sum(range(1, count + 1))}
    assert len({(round_.master_addr, round_.master_port) for round_ in rounds}) == 1
    assert len({round_.counters for round_ in rounds}) == 1


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_many_rounds_follow_each_other_in_one_store(store):
    nodes = nodes_of(store, [hello()] * 3)
    seen = set()
    for number in range(4):
        for node in nodes:
            node.hello = hello(attempt=number)
        rounds = join_all(nodes)
        assert {round_.counters.attempt for round_ in rounds} == {number}
        # What one round puts into its control store is not there in the next.
        assert not any(round_.control.check(["key"]) for round_ in rounds)
        rounds[0].control.set("key", "value")
        assert all(round_.control.check(["key"]) for round_ in rounds)
        seen.add((rounds[0].master_addr, rounds[0].master_port))
    assert len(seen) == 4  # each attempt has a store of its own


def test_a_late_joiner_adopts_the_numbers_of_the_job(store):
    counters = {"attempt": 7, "restart_count": 2, "generation": 1, "node_relaunches": 1}
    nodes = nodes_of(store, [hello(), hello(**counters), hello(**counters)])
    assert {round_.counters for round_ in join_all(nodes)} == {Counters(**counters)}


def test_the_old_tuple_is_as_good_as_an_info(store):
    nodes = [Node(Handler(store(), rank, 2, tuples=True), hello()) for rank in range(2)]
    assert [round_.rank for round_ in join_all(nodes)] == [0, 1]


def test_roles_have_ranks_of_their_own(store):
    nodes = nodes_of(store, [hello(2, "trainer"), hello(1, "reader"), hello(2, "trainer")])
    rounds = join_all(nodes)
    assert [
        (round_.placement.first_role_rank, round_.placement.role_world_size) for round_ in rounds
    ] == [(0, 4), (0, 1), (2, 4)]


def test_the_first_node_knows_what_the_others_have_otherwise(store):
    hellos = [Hello("x", 1, Counters(), {"--max-restarts": text}) for text in ("3", "0", "3")]
    rounds = join_all(nodes_of(store, hellos))
    assert [round_.differing for round_ in rounds] == [
        {"--max-restarts": {"3": (0, 2), "0": (1,)}},
        {},
        {},
    ]


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_a_hello_that_a_dead_agent_left_behind_does_not_count(store):
    """It said hello and died before anybody answered; another one has its rank now."""
    dead = Node(Handler(store(), 1, 2), hello())
    dead.join(timeout=0.2)
    with pytest.raises(RuntimeError):
        dead.joined()
    nodes = nodes_of(store, [hello(), hello()])
    for node in nodes:
        node.join(timeout=1.5)
    assert [node.joined().rank for node in nodes] == [0, 1]


def test_a_missing_agent_ends_the_wait(store):
    nodes = nodes_of(store, [hello(), hello()])
    nodes[0].join(timeout=0.2)
    with pytest.raises(RuntimeError, match="timeout"):
        nodes[0].joined()


# ---- a node on its own -------------------------------------------------------------------------


def test_a_node_on_its_own_needs_no_exchange():
    """Not even a store that works."""
    handler = Handler(HashStore(), 0, 1)
    round_ = join(handler, hello(3, attempt=4), StoreForWorkers(handler, None, None), None, 1.0)
    assert (round_.rank, round_.world_size, round_.placement.world_size) == (0, 1, 3)
    assert round_.counters.attempt == 4


# ---- the workers' store ------------------------------------------------------------------------


def info(world_size=1, address=None):
    return RendezvousInfo(HashStore(), 0, world_size, address)


def test_an_offered_store_is_used_once():
    handler = Handler(HashStore(), 0, 1)
    stores = StoreForWorkers(handler, None, None)
    offered = RendezvousStoreInfo("10.0.0.1", 29500)
    first = stores.choose(info(address=offered), None)
    assert (first.addr, first.port, first.server) == ("10.0.0.1", 29500, None)
    second = stores.choose(info(address=offered), None)
    assert second.port != 29500
    assert second.server is not None
    third = stores.choose(info(address=offered), None)
    assert third.port not in (29500, second.port)
    other = stores.choose(info(address=RendezvousStoreInfo("10.0.0.1", 29501)), None)
    assert (other.port, other.server) == (29501, None)


def test_the_first_attempt_uses_the_port_that_was_asked_for_and_later_ones_another():
    handler = Handler(HashStore(), 0, 1)
    stores = StoreForWorkers(handler, "10.0.0.1", 29500)
    assert stores.choose(info(), None).port == 29500
    assert stores.choose(info(), None).port != 29500


def test_a_store_that_the_agent_hosts_can_be_reached_and_is_empty():
    handler = Handler(HashStore(), 0, 1)
    stores = StoreForWorkers(handler, None, None)
    for _ in range(2):
        chosen = stores.choose(info(), "127.0.0.1")
        client = TCPStore(
            chosen.addr, chosen.port, is_master=False, timeout=timedelta(seconds=TIMEOUT)
        )
        assert not client.check(["key"])
        client.set("key", "value")


def test_where_workers_host_their_store_they_get_a_free_port():
    handler = Handler(HashStore(), 0, 1, agent_store=False)
    chosen = StoreForWorkers(handler, None, None).choose(info(), None)
    assert (chosen.addr, chosen.server) == ("localhost", None)
    assert 1024 <= chosen.port < 65536


def test_what_torchs_handler_remembers_of_its_first_round_is_forgotten():
    handler = Handler(HashStore(), 0, 1)
    handler._bootstrap_store_info = handler._shared_tcp_store_server = "of the first round"
    forget_earlier_rounds(handler)
    assert handler._bootstrap_store_info is None
    assert handler._shared_tcp_store_server is None
    plain = Handler(HashStore(), 0, 1)
    forget_earlier_rounds(plain)
    assert not hasattr(plain, "_bootstrap_store_info")
