# filename: myrdzv.py
"""A rendezvous handler of one's own: a fixed number of nodes that meet in one shared file.

On one node nothing else is needed:

    cd examples/custom_rendezvous
    dlrover-run --rdzv_handler=myrdzv::MyRendezvousHandler --nproc-per-node=2 ../train_ddp.py

On several nodes name a folder that all of them see, and an id that this run alone has:

    dlrover-run --rdzv_handler=myrdzv::MyRendezvousHandler --nnodes=2 --rdzv-id=job42 \
        --rdzv-conf=path=/shared/rdzv --nproc-per-node=2 ../train_ddp.py
"""

import tempfile
import time
from pathlib import Path

from torch.distributed import FileStore, PrefixStore, Store
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
)


class MyRendezvousHandler(RendezvousHandler):
    """Nodes get numbers as they arrive; every `nodes` arrivals are one round.

    All that the nodes have to agree on is in the file, so a node that is started again simply
    arrives once more: the others see it waiting, arrive too, and the next round is full.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        if params.min_nodes != params.max_nodes:
            raise ValueError("MyRendezvousHandler needs a fixed number of nodes, as in --nnodes=2")
        if params.max_nodes > 1 and not params.get("path"):
            raise ValueError("with several nodes give a shared folder: --rdzv-conf=path=/shared")
        self._run_id = params.run_id
        self._nodes = params.max_nodes
        self._timeout = float(params.get("join_timeout", 600))
        self._own_folder = None if params.get("path") else tempfile.TemporaryDirectory()
        folder = Path(params.get("path") or self._own_folder.name)
        folder.mkdir(parents=True, exist_ok=True)
        self._store = FileStore(str(folder / self._run_id))

    def next_rendezvous(self) -> tuple[Store, int, int]:
        # Using the synchronization procedure that is common among all the agents
        # agree on the ranks and return the common storage
        arrival = self._store.add("arrivals", 1) - 1
        number, rank = divmod(arrival, self._nodes)
        if rank == self._nodes - 1:
            self._store.set(f"round {number} is full", "yes")
        self._wait_until(f"round {number} is full")
        return PrefixStore(f"round {number}", self._store), rank, self._nodes

    def num_nodes_waiting(self) -> int:
        if not self._store.check(["arrivals"]):
            return 0
        return int(self._store.get("arrivals")) % self._nodes

    def is_closed(self) -> bool:
        return self._store.check(["closed"])

    def set_closed(self) -> None:
        self._store.set("closed", "yes")

    def shutdown(self) -> bool:
        if self._own_folder is not None:
            self._own_folder.cleanup()
        return True

    def get_backend(self) -> str:
        return "myrdzv"

    def get_run_id(self) -> str:
        return self._run_id

    def _wait_until(self, key: str) -> None:
        end = time.monotonic() + self._timeout
        while not self._store.check([key]):
            if self.is_closed():
                raise RendezvousClosedError(f"the rendezvous {self._run_id!r} is closed")
            if time.monotonic() > end:
                # The number that this node was given can not be taken back: nobody may wait for it.
                self.set_closed()
                raise RendezvousTimeoutError(
                    f"not all {self._nodes} nodes came: {key!r} is missing"
                )
            time.sleep(0.05)
