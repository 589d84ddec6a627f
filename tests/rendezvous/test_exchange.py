"""A node that is in a round of `dlrover` and dead: the others notice, and meet without it."""

import threading
from concurrent.futures import Future

import pytest

from dlrover_cli.agent.ranks import Hello
from dlrover_cli.agent.rounds import Round, StoreForWorkers, join
from dlrover_cli.failover.decide import Counters
from tests.rendezvous.nodes import PATIENCE, Job, Node

QUICK = {"keep_alive_interval": 0.3, "keep_alive_max_attempt": 3}


def join_as_agent(node: Node) -> "Future[Round]":
    """All that an agent does to get into a round, the exchange of hellos included, in a thread."""
    node.handler.exchange_timeout = 0.5
    future: Future[Round] = Future()

    def run() -> None:
        try:
            stores = StoreForWorkers(node.handler, None, None)
            hello = Hello("default", 1, Counters())
            future.set_result(join(node.handler, hello, stores, "127.0.0.1", PATIENCE))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            future.set_exception(error)

    threading.Thread(target=run, name="agent", daemon=True).start()
    return future


def arrive_in_order(job: Job, nodes: list[Node], dying: Node) -> "dict[Node, Future[Round]]":
    """Rank by rank. The one that dies takes part in the round, and then is heard of no more."""
    futures = {}
    for count, node in enumerate(nodes, start=1):
        if node is dying:
            met = node.join()
        else:
            futures[node] = join_as_agent(node)
        if count < len(nodes):
            job.await_waiting(count, number=1)
    met.result(PATIENCE)
    dying.die()
    return futures


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_others_go_on_without_a_node_that_died_when_the_round_was_complete(
    job: Job, rank: int
) -> None:
    nodes = [job.node(2, 3, **QUICK) for _ in range(3)]
    futures = arrive_in_order(job, nodes, nodes[rank])
    rounds = [future.result(PATIENCE) for future in futures.values()]
    assert sorted(round_.rank for round_ in rounds) == [0, 1]
    assert {round_.world_size for round_ in rounds} == {2}
    assert len({(round_.master_addr, round_.master_port) for round_ in rounds}) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_job_meets_again_with_the_one_that_takes_the_place_of_the_dead(
    job: Job, rank: int
) -> None:
    nodes = [job.node(2, 2, **QUICK) for _ in range(2)]
    [(survivor, waiting)] = arrive_in_order(job, nodes, nodes[rank]).items()
    replacement = join_as_agent(job.node(2, 2, **QUICK))
    rounds = [waiting.result(PATIENCE), replacement.result(PATIENCE)]
    assert sorted(round_.rank for round_ in rounds) == [0, 1]
    assert len({(round_.master_addr, round_.master_port) for round_ in rounds}) == 1
    assert rounds[1].rank == rank, "whoever takes a place takes its rank"
    assert survivor.handler.num_nodes_waiting() == 0
