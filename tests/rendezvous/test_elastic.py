"""The rendezvous `dlrover` among threads of one process: who comes, who goes, who takes over."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)

from dlrover_cli.errors import RendezvousFailed
from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.store_host import StoreHost
from tests.harness.waiting import eventually
from tests.rendezvous.nodes import PATIENCE, Job, meet, ranks


class TestRounds:
    def test_ranks_stay_from_round_to_round(self, job: Job) -> None:
        nodes = [job.node(5, 5) for _ in range(5)]
        first = ranks(meet(*nodes))
        assert sorted(first) == [0, 1, 2, 3, 4]
        for _ in range(3):
            assert ranks(meet(*reversed(nodes))) == first[::-1]

    def test_a_round_reads_nothing_of_the_round_before(self, job: Job) -> None:
        nodes = [job.node(), job.node()]
        before, after = meet(*nodes)[0], meet(*nodes)[0]
        before.store.set("key", "value")
        assert not after.store.check(["key"])

    def test_every_round_has_a_new_store_for_workers_where_rank_0_is(self, job: Job) -> None:
        nodes = [job.node(), job.node()]
        addresses = set()
        for _ in range(3):
            met = meet(*nodes)
            [address] = {
                (info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port)
                for info in met
            }
            addresses.add(address)
            host = nodes[ranks(met).index(0)].host
            assert host.ports == {address[1]}, "those of earlier rounds are dropped"
        assert len(addresses) == 3
        assert {addr for addr, _ in addresses} == {"10.0.0.1"}

    def test_a_node_costs_the_store_the_same_in_a_large_round_as_in_a_small_one(self) -> None:
        costs = [operations_per_node(count) for count in (4, 32)]
        assert costs[1] <= costs[0] <= 20

    def test_many_rounds_leave_no_more_in_the_store_than_a_few(self, job: Job) -> None:
        nodes = [job.node(), job.node()]
        sizes = []
        for _ in range(6):
            meet(*nodes)
            sizes.append(job.store.num_keys())
        assert sizes[-1] == sizes[-3]


@pytest.mark.full
def test_the_node_that_coordinates_tells_how_many_are_there(job: Job) -> None:
    first, second, third = (job.node(3, 3, keep_alive_interval=0.2) for _ in range(3))
    told: list[tuple[int, int]] = []
    first.handler.tell_arrivals(lambda nodes, wanted: told.append((nodes, wanted)))
    waiting = first.join()
    eventually(lambda: told == [(1, 3)], PATIENCE)
    second.join()
    eventually(lambda: told == [(1, 3), (2, 3)], PATIENCE)
    third.join()
    assert waiting.result(PATIENCE).world_size == 3


class TestElastic:
    def test_a_round_that_could_be_larger_starts_after_the_last_call(self, job: Job) -> None:
        node = job.node(1, 2, last_call_timeout=0.2)
        [met] = meet(node)
        assert (met.rank, met.world_size) == (0, 1)

    def test_a_newcomer_is_announced_and_let_in(self, job: Job) -> None:
        first, second = job.node(1, 2, last_call_timeout=0), job.node(1, 2, last_call_timeout=0)
        meet(first)
        waiting = second.join()
        eventually(lambda: first.handler.num_nodes_waiting() == 1, PATIENCE)
        assert not waiting.done()
        [met] = meet(first)
        assert (met.rank, met.world_size) == (0, 2)
        assert waiting.result(PATIENCE).rank == 1
        assert first.handler.num_nodes_waiting() == 0

    def test_a_newcomer_that_leaves_again_is_not_announced_any_more(self, job: Job) -> None:
        first, second, third = (job.node(1, 3, last_call_timeout=0) for _ in range(3))
        meet(first)
        waiting = second.join()
        eventually(lambda: first.handler.num_nodes_waiting() == 1, PATIENCE)
        other = third.join()
        eventually(lambda: first.handler.num_nodes_waiting() == 2, PATIENCE)
        third.handler.leave()
        with pytest.raises(RendezvousGracefulExitError):
            other.result(PATIENCE)
        eventually(lambda: first.handler.num_nodes_waiting() == 1, PATIENCE)
        assert [info.world_size for info in meet(first)] == [2]
        assert waiting.result(PATIENCE).world_size == 2

    def test_a_job_goes_on_at_once_without_a_node_that_left(self, job: Job) -> None:
        nodes = [job.node(1, 3, last_call_timeout=60) for _ in range(3)]
        met = meet(*nodes)
        gone = ranks(met).index(1)
        nodes[gone].handler.leave()
        del nodes[gone]
        again = meet(*nodes)
        assert sorted(ranks(again)) == [0, 1]
        assert {info.world_size for info in again} == {2}


class TestSpares:
    def test_a_spare_waits_unannounced_until_a_node_leaves(self, job: Job) -> None:
        first, second, spare = (job.node(join_timeout=2) for _ in range(3))
        met = meet(first, second)
        waiting = spare.join()
        job.await_waiting(1, number=2)
        assert first.handler.num_nodes_waiting() == 0
        second.handler.leave()
        eventually(lambda: first.handler.num_nodes_waiting() == 1, PATIENCE)
        [again] = meet(first)
        assert again.rank == met[0].rank, "the survivor keeps its rank"
        assert waiting.result(PATIENCE).rank == met[1].rank

    def test_the_nodes_of_a_job_are_not_displaced_by_a_spare(self, job: Job) -> None:
        first, second, spare = job.node(), job.node(), job.node()
        met = ranks(meet(first, second))
        waiting = spare.join()
        job.await_waiting(1, number=2)
        for _ in range(2):
            assert ranks(meet(first, second)) == met
        assert not waiting.done()

    def test_the_last_of_several_spares_becomes_a_node_in_the_end(self, job: Job) -> None:
        current = [job.node(1, 1)]
        meet(*current)
        spares = [job.node(1, 1) for _ in range(3)]
        waiting = {spare: spare.join() for spare in spares}
        while waiting:
            current[0].handler.leave()
            eventually(lambda: any(future.done() for future in waiting.values()), PATIENCE)
            [current[0]] = [spare for spare, future in waiting.items() if future.done()]
            assert waiting.pop(current[0]).result().rank == 0


class TestDeaths:
    QUICK: ClassVar = {"keep_alive_interval": 0.3, "keep_alive_max_attempt": 3}

    def test_a_coordinator_that_dies_is_replaced(self, job: Job) -> None:
        ghost(job, number=1)
        met = meet(*(job.node(**self.QUICK) for _ in range(2)))
        assert sorted(ranks(met)) == [0, 1]

    def test_a_waiting_node_that_dies_is_not_counted(self, job: Job) -> None:
        nodes = [job.node(3, 3, **self.QUICK) for _ in range(3)]
        waiting = nodes[0].join()
        job.await_waiting(1, number=1)
        ghost(job, number=1, bounds=[3, 3])
        seen = job.board.beat(1, 0)
        eventually(lambda: job.board.beat(1, 0) >= seen + 3, PATIENCE, what="some time")
        assert sorted(ranks([*meet(*nodes[1:]), waiting.result(PATIENCE)])) == [0, 1, 2]

    def test_a_dead_member_holds_the_next_round_up_no_longer_than_its_lease(self, job: Job) -> None:
        nodes = [job.node(1, 2, last_call_timeout=60, **self.QUICK) for _ in range(2)]
        meet(*nodes)
        nodes[0].die()
        [met] = meet(nodes[1])
        assert (met.rank, met.world_size) == (0, 1)

    def test_a_full_job_with_a_dead_member_is_told_of_its_replacement(self, job: Job) -> None:
        dead, other, replacement = (job.node(**self.QUICK) for _ in range(3))
        meet(dead, other)
        dead.die()
        waiting = replacement.join()
        eventually(lambda: other.handler.num_nodes_waiting() == 1, PATIENCE)
        assert sorted(ranks([*meet(other), waiting.result(PATIENCE)])) == [0, 1]

    def test_a_job_whose_nodes_all_died_can_be_started_again_under_its_id(self, job: Job) -> None:
        nodes = [job.node(**self.QUICK) for _ in range(2)]
        meet(*nodes)
        for node in nodes:
            node.die()
        assert sorted(ranks(meet(*(job.node(**self.QUICK) for _ in range(2))))) == [0, 1]

    def test_a_node_that_slept_through_many_rounds_waits_for_the_next_one(self, job: Job) -> None:
        nodes = [job.node(1, 2, last_call_timeout=60, **self.QUICK) for _ in range(2)]
        meet(*nodes)
        nodes[0].handler.leave()
        for _ in range(4):
            meet(nodes[1])
        waiting = nodes[0].join()
        eventually(lambda: nodes[1].handler.num_nodes_waiting() == 1, PATIENCE)
        assert sorted(ranks([*meet(nodes[1]), waiting.result(PATIENCE)])) == [0, 1]


class TestEndings:
    def test_a_closed_job_sends_waiting_nodes_away_and_lets_nobody_in(self, job: Job) -> None:
        first, second, spare, late = (job.node() for _ in range(4))
        meet(first, second)
        waiting = spare.join()
        job.await_waiting(1, number=2)
        assert first.handler.shutdown()
        for future in (waiting, late.join(), second.join()):
            with pytest.raises(RendezvousClosedError):
                future.result(PATIENCE)
        assert second.handler.is_closed()

    def test_too_few_nodes_end_with_a_sentence(self, job: Job) -> None:
        with pytest.raises(RendezvousTimeoutError) as raised:
            job.node(2, 2, join_timeout=0.2).join().result(PATIENCE)
        assert isinstance(raised.value, RendezvousFailed)
        assert raised.value.message == (
            "the nodes did not come together within 0.2 s: 1 came, and 2 are needed"
        )
        assert "--nnodes" in (raised.value.hint or "")

    def test_who_gives_up_is_not_counted_on_later(self, job: Job) -> None:
        with pytest.raises(RendezvousTimeoutError):
            job.node(join_timeout=0.2).join().result(PATIENCE)
        assert sorted(ranks(meet(job.node(), job.node()))) == [0, 1]

    def test_nodes_that_wait_survive_a_coordinator_that_leaves(self, job: Job) -> None:
        first, second, third = job.node(3, 3), job.node(3, 3), job.node(3, 3)
        leaving = first.join()
        job.await_waiting(1, number=1)
        staying = second.join()
        job.await_waiting(2, number=1)
        first.handler.leave()
        with pytest.raises(RendezvousGracefulExitError):
            leaving.result(PATIENCE)
        job.await_waiting(1, number=2)
        others = meet(third, job.node(3, 3))
        assert sorted(ranks([*others, staying.result(PATIENCE)])) == [0, 1, 2]

    @pytest.mark.parametrize("running", [False, True])
    def test_a_node_with_other_nnodes_is_refused(self, job: Job, running: bool) -> None:
        first, second = job.node(2, 2), job.node(2, 2)
        waiting = None
        if running:
            meet(first, second)
        else:
            waiting = first.join()
            job.await_waiting(1, number=1)
        with pytest.raises(RendezvousFailed) as raised:
            job.node(1, 4).join().result(PATIENCE)
        assert raised.value.message == (
            f"this node was started with --nnodes=1:4, and the job {job.run_id!r} with --nnodes=2"
        )
        met = meet(second) if waiting else meet(first, second)
        assert len({info.world_size for info in met}) == 1, "the others are none the worse"

    def test_a_store_that_is_gone_ends_the_wait_with_a_sentence(self) -> None:
        host = StoreHost.spawn()
        job = Job(host.open())
        node = job.node()
        waiting = node.join()
        job.await_waiting(1, number=1)
        host.close()
        with pytest.raises(RendezvousConnectionError) as raised:
            waiting.result(PATIENCE)
        assert isinstance(raised.value, RendezvousFailed)
        assert raised.value.message == "the store of the rendezvous at 127.0.0.1:1 is gone"
        assert "dlrover-job rendezvous serve" in (raised.value.hint or "")
        node.handler.release()

    def test_a_store_that_goes_while_the_coordinator_connects_ends_the_wait(self) -> None:
        host = StoreHost.spawn()
        job = Job(host.open())
        node = job.node()
        eventually(lambda: node.handler._mailbox._own_board is not None, PATIENCE)
        node.handler._board._store = _GoneBeforeItIsCloned(node.handler._board._store, host)
        with pytest.raises(RendezvousConnectionError):
            node.join().result(PATIENCE)
        node.handler.release()


def ghost(job: Job, number: int, bounds: Sequence[int] = (2, 2)) -> None:
    """A node that arrives and dies."""
    job.board.log(number, {"node": f"ghost-{uuid.uuid4().hex}", "bounds": list(bounds)})
    job.board.take_ticket(number)


def operations_per_node(count: int) -> float:
    job = Job()
    try:
        nodes = [job.node(count, count) for _ in range(count)]
        meet(*nodes)
        counters = [_count_operations(node.handler) for node in nodes]
        meet(*nodes)
        return sum(counter() for counter in counters) / count
    finally:
        for node in job.nodes:
            node.handler.release()


def _count_operations(handler: ElasticRendezvous) -> Callable[[], int]:
    counters = []
    for board in (handler._board, handler._mailbox._own_board):
        counting = _Counting(board._store)
        board._store = counting
        counters.append(counting)
    return lambda: sum(counter.count for counter in counters)


class _GoneBeforeItIsCloned:
    """A store whose process ends when somebody is about to connect to it."""

    def __init__(self, store: Any, host: StoreHost) -> None:
        self._store = store
        self._host = host

    def clone(self) -> Any:
        self._host.close()
        return self._store.clone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Counting:
    """A store that counts how often it is asked for something."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        self.count += 1
        return getattr(self._store, name)
