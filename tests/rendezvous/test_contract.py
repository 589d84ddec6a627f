"""Every rendezvous handler that runs here keeps the contract: ours, torch's and the example's."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.loading import create_rendezvous_handler
from dlrover_cli.rendezvous.local import LocalRendezvous
from dlrover_cli.testing.rendezvous_contract import MakeNodes, RendezvousContract
from tests.integration.jobs import free_port
from tests.rendezvous.fakes import FakeStoreHost

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_rendezvous"


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def parameters(backend: str, endpoint: str, count: int, **conf: Any) -> RendezvousParameters:
    return RendezvousParameters(
        backend, endpoint, conf.pop("run_id"), count, count, local_addr="127.0.0.1", **conf
    )


class TestOurs(RendezvousContract):
    @pytest.fixture
    def make_nodes(self, store: TCPStore) -> Iterator[MakeNodes]:
        with ExitStack() as stack:

            def make(count: int) -> list[RendezvousHandler]:
                run_id = uuid.uuid4().hex
                nodes = []
                for _ in range(count):
                    client = TCPStore("127.0.0.1", store.port)
                    node = ElasticRendezvous(
                        client, run_id, Rules(count, count), "here", make_host=FakeStoreHost
                    )
                    stack.callback(node.release)
                    nodes.append(node)
                return nodes

            yield make


@pytest.mark.full
class TestC10d(RendezvousContract):
    @pytest.fixture
    def make_nodes(self, store: TCPStore) -> Iterator[MakeNodes]:
        with ExitStack() as stack:

            def make(count: int) -> list[RendezvousHandler]:
                conf = {"run_id": uuid.uuid4().hex, "is_host": "0", "join_timeout": "30"}
                endpoint = f"127.0.0.1:{store.port}"
                nodes = [
                    get_rendezvous_handler(parameters("c10d", endpoint, count, **conf))
                    for _ in range(count)
                ]
                for node in nodes:
                    stack.callback(node.shutdown)
                return nodes

            yield make


class TestStatic(RendezvousContract):
    closes = False

    @pytest.fixture
    def make_nodes(self) -> MakeNodes:
        def make(count: int) -> list[RendezvousHandler]:
            endpoint, run_id = f"127.0.0.1:{free_port()}", uuid.uuid4().hex
            return [
                get_rendezvous_handler(
                    parameters("static", endpoint, count, run_id=run_id, rank=rank, timeout=30)
                )
                for rank in range(count)
            ]

        return make


class TestLocal(RendezvousContract):
    node_counts = (1,)

    @pytest.fixture
    def make_nodes(self) -> MakeNodes:
        return lambda count: [LocalRendezvous()]


class TestExample(RendezvousContract):
    @pytest.fixture
    def make_nodes(self, tmp_path: Path) -> Iterator[MakeNodes]:
        def make(count: int) -> list[RendezvousHandler]:
            run_id = uuid.uuid4().hex
            conf = {"run_id": run_id, "path": str(tmp_path), "join_timeout": "30"}
            return [
                create_rendezvous_handler(
                    "myrdzv::MyRendezvousHandler",
                    parameters("myrdzv", "", count, **conf),
                    [EXAMPLE],
                )
                for _ in range(count)
            ]

        yield make
        sys.modules.pop("myrdzv", None)
