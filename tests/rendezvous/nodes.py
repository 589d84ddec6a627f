"""Nodes of the rendezvous `dlrover` in threads of one process, at a store of their own."""

import threading
import uuid
from concurrent.futures import Future
from typing import Any

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo

from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.job_board import JobBoard
from tests.harness.waiting import eventually
from tests.rendezvous.fakes import FakeStoreHost

PATIENCE = 30.0


class Node:
    """One node of a job; its rounds run in threads."""

    def __init__(self, job: "Job", rules: Rules) -> None:
        self.host = FakeStoreHost()
        self.handler = ElasticRendezvous(
            TCPStore("127.0.0.1", job.store.port),
            job.run_id,
            rules,
            "127.0.0.1:1",
            "10.0.0.1",
            make_host=lambda: self.host,
        )

    def join(self) -> "Future[RendezvousInfo]":
        """Wait for a round, in a thread."""
        future: Future[RendezvousInfo] = Future()

        def run() -> None:
            try:
                future.set_result(self.handler.next_rendezvous())
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                future.set_exception(error)

        threading.Thread(target=run, name="node", daemon=True).start()
        return future

    def die(self) -> None:
        """Answer nobody any more, without a word."""
        self.handler._mailbox.stop()


class Job:
    """The nodes of one job, at a store of their own."""

    def __init__(self, port: int = 0) -> None:
        self.store = TCPStore("127.0.0.1", port, is_master=port == 0, wait_for_workers=False)
        self.run_id = uuid.uuid4().hex
        self.board = JobBoard(self.store, self.run_id)
        self.nodes: list[Node] = []

    def node(self, least: int = 2, most: int = 2, **rules: Any) -> Node:
        node = Node(self, Rules(least, most, **rules))
        self.nodes.append(node)
        return node

    def await_waiting(self, count: int, number: int) -> None:
        """Until so many nodes have arrived for a round."""
        eventually(lambda: len(self.board.read_log(number)) >= count, PATIENCE)


def meet(*nodes: Node) -> list[RendezvousInfo]:
    futures = [node.join() for node in nodes]
    return [future.result(PATIENCE) for future in futures]


def ranks(met: list[RendezvousInfo]) -> list[int]:
    return [info.rank for info in met]
