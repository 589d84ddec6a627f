"""torch's etcd-v2 keeps the contract, with a real etcd."""

import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous import RendezvousHandler
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from dlrover_cli.testing.rendezvous_contract import MakeNodes, RendezvousContract
from tests.harness.engines import need_module, need_program
from tests.harness.waiting import eventually
from tests.integration.jobs import free_port
from tests.rendezvous.test_contract import parameters

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server of our own."""
    program = need_program("etcd", "etcd-server")
    need_module("etcd", "etcd")
    directory = tmp_path_factory.mktemp("etcd")
    clients, peers = (f"127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        program,
        "--enable-v2=true",
        f"--data-dir={directory / 'data'}",
        f"--listen-client-urls=http://{clients}",
        f"--advertise-client-urls=http://{clients}",
        f"--listen-peer-urls=http://{peers}",
        f"--initial-advertise-peer-urls=http://{peers}",
        f"--initial-cluster=default=http://{peers}",
    ]
    log = directory / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        eventually(lambda: _answers(clients, server, log), 30, what="etcd is up")
        yield clients
    finally:
        server.kill()
        server.wait()


def _answers(endpoint: str, server: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert server.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=5) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


class TestEtcd(RendezvousContract):
    @pytest.fixture
    def make_nodes(self, etcd: str) -> Iterator[MakeNodes]:
        with ExitStack() as stack:

            def make(count: int) -> list[RendezvousHandler]:
                conf = {"run_id": uuid.uuid4().hex, "join_timeout": "30"}
                nodes = [
                    get_rendezvous_handler(parameters("etcd-v2", etcd, count, **conf))
                    for _ in range(count)
                ]
                for node in nodes:
                    stack.callback(node.shutdown)
                return nodes

            yield make
