"""The rendezvous of a single node: nobody to meet, and a new store in every round."""

import uuid

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from dlrover_cli.rendezvous.store_host import StoreHost


class LocalRendezvous(RendezvousHandler):
    """One node on its own, on a free port. Never grows, never waits."""

    never_grows = True

    def __init__(
        self, run_id: str = "", local_addr: str | None = None, host: StoreHost | None = None
    ) -> None:
        """``host`` is where the store lives; without one it lives in this process."""
        self._host = host
        self._run_id = run_id or str(uuid.uuid4())
        self._local_addr = local_addr
        self._closed = False
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        return "dlrover"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Open a store at a free port; the one of the round before is dropped."""
        self._store = self._open()
        address = RendezvousStoreInfo(self._local_addr or "localhost", self._store.port)
        return RendezvousInfo(self._store, 0, 1, address)

    def _open(self) -> TCPStore:
        if self._host is not None:
            port = self._host.replace(None if self._store is None else self._store.port)
            if port is not None:
                return TCPStore("localhost", port)
            self._host = None
        return TCPStore("localhost", 0, is_master=True, multi_tenant=True)

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._closed = True
        self._store = None
        return True
