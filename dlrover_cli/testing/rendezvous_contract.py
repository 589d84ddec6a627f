"""What a rendezvous handler has to do for a launcher: tests to run against one's own.

    class TestMyHandler(RendezvousContract):
        @pytest.fixture
        def make_nodes(self, tmp_path):
            def make(count):
                return [MyHandler(…) for _ in range(count)]  # one per node, all of one new job

            return make

A handler that leaves something out on purpose says so: `closes = False`.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
)

from dlrover_cli.rendezvous.loading import as_rendezvous_info

MakeNodes = Callable[[int], Sequence[RendezvousHandler]]

_T = TypeVar("_T")


class RendezvousContract:
    """Derive from it, name the class Test…, and give it a fixture `make_nodes`.

    `make_nodes(count)` makes the handlers of all nodes of a new job that needs them all.
    """

    node_counts: Sequence[int] = (1, 2, 3)
    """How many nodes to try it with; a handler for one node has (1,)."""
    closes = True
    """Whether a job that was closed stays closed."""
    patience = 30.0
    """How many seconds a round may take."""

    @pytest.fixture
    def make_nodes(self) -> MakeNodes:
        raise NotImplementedError("give the class a fixture make_nodes")

    @pytest.fixture
    def nodes(self, make_nodes: MakeNodes) -> Sequence[RendezvousHandler]:
        """The most nodes that the handler is for."""
        return make_nodes(max(self.node_counts))

    def test_every_node_gets_a_rank_of_its_own(self, make_nodes: MakeNodes) -> None:
        for count in self.node_counts:
            met = self.meet(make_nodes(count))
            assert sorted(info.rank for info in met) == list(range(count))
            assert {info.world_size for info in met} == {count}

    def test_what_one_node_writes_into_the_store_the_others_read(
        self, nodes: Sequence[RendezvousHandler]
    ) -> None:
        met = sorted(self.meet(nodes), key=lambda info: info.rank)
        met[0].store.set("contract/key", "value")
        for info in met:
            info.store.wait(["contract/key"], timedelta(seconds=self.patience))
            assert info.store.get("contract/key") == b"value"

    def test_the_store_counts(self, nodes: Sequence[RendezvousHandler]) -> None:
        met = self.meet(nodes)
        key = f"contract/{uuid.uuid4().hex}"
        assert not met[0].store.check([key])
        assert [info.store.add(key, 1) for info in met] == list(range(1, len(met) + 1))

    def test_one_round_follows_another(self, nodes: Sequence[RendezvousHandler]) -> None:
        for _ in range(3):
            met = self.meet(nodes)
            assert sorted(info.rank for info in met) == list(range(len(nodes)))

    def test_nobody_waits_outside_a_complete_round(
        self, nodes: Sequence[RendezvousHandler]
    ) -> None:
        self.meet(nodes)
        assert [node.num_nodes_waiting() for node in nodes] == [0] * len(nodes)

    def test_the_nodes_of_a_job_name_the_same_job_and_backend(
        self, nodes: Sequence[RendezvousHandler]
    ) -> None:
        for name in ({node.get_run_id() for node in nodes}, {node.get_backend() for node in nodes}):
            assert len(name) == 1
            assert all(name)

    def test_a_job_that_is_closed_is_closed_for_every_node(
        self, nodes: Sequence[RendezvousHandler]
    ) -> None:
        self._skip_unless_it_closes()
        assert not any(node.is_closed() for node in nodes)
        self.meet(nodes)
        nodes[0].set_closed()  # type: ignore[no-untyped-call]
        assert nodes[0].is_closed()
        for node in nodes[1:]:
            with pytest.raises(RendezvousClosedError):
                self.in_time(node.next_rendezvous)

    def test_shutting_down_raises_nothing_in_any_order(
        self, nodes: Sequence[RendezvousHandler]
    ) -> None:
        self.meet(nodes)
        for node in reversed(nodes):
            assert isinstance(node.shutdown(), bool)

    def meet(self, nodes: Sequence[RendezvousHandler]) -> list[RendezvousInfo]:
        """One round of all of them, in the order of the nodes."""
        calls = [_Call(node.next_rendezvous) for node in nodes]
        met = [call.result(self.patience) for call in calls]
        return [as_rendezvous_info(info, node) for info, node in zip(met, nodes, strict=True)]

    def in_time(self, function: Callable[[], _T]) -> _T:
        """What the function returns, unless it takes too long."""
        value: _T = _Call(function).result(self.patience)
        return value

    def _skip_unless_it_closes(self) -> None:
        if not self.closes:
            pytest.skip("this handler knows no end of a job")


class _Call:
    """One node's part, in a thread of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="contract-node", daemon=True)
        self._thread.start()

    def result(self, seconds: float) -> Any:
        self._thread.join(seconds)
        if self._thread.is_alive():
            pytest.fail(f"{self._function.__qualname__} did not return within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
            self._error = error
