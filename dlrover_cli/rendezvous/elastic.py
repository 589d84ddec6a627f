"""The rendezvous `dlrover`: nodes meet on a store, one of them coordinates, all wait for mail."""

import os
import queue
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

from torch.distributed import PrefixStore, Store
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.job_board import JobBoard, Message
from dlrover_cli.rendezvous.joining import LEAVE, Joining, Membership, Placed
from dlrover_cli.rendezvous.mailbox import Mailbox, await_byes
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.rendezvous.troubles import StoreLost
from dlrover_cli.rendezvous.workers_store import WorkersStore

_LEAVE_SECONDS = 2.0


class ElasticRendezvous(RendezvousHandler):
    """One node's part in the rounds of a job. See `job_board` for what is in the store.

    A node announces itself and waits for a message; the first one of a round, or whoever takes over
    from it, coordinates and sends them. That is a handful of operations on the store per node and
    round. Its mailbox has a thread, which ends with `shutdown` or `release`.
    """

    exchange_timeout = 15.0
    """How long the agents of a round that is complete wait for each other."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        rules: Rules,
        endpoint: str,
        local_addr: str | None = None,
        host: StoreHost | None = None,
        make_host: Callable[[], StoreHost] = StoreHost.spawn,
    ) -> None:
        """``host`` is where stores of workers will be; without, one is made on demand."""
        self.hosts_store = False
        """Whether the store where the nodes meet ends with this node."""
        node = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._me = Membership(node, run_id, endpoint, rules)
        self._store = store
        self._board = JobBoard(store, run_id)
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._workers_store = WorkersStore(host, make_host, local_addr)
        self._joining = Joining(self._me, self._board, self._inbox, self._workers_store)
        self._last: Placed | None = None
        self._wanted = (0, 0)
        self._is_released = False
        self._is_out = threading.Event()
        self._is_out.set()
        self._mailbox = Mailbox(self._board, f"mail/{node}", self._receive, self._joining.lose)

    def get_backend(self) -> str:
        return "dlrover"

    @property
    def use_agent_store(self) -> bool:
        return True

    def tell_arrivals(self, listener: Callable[[int, int], None]) -> None:
        """Have ``listener`` told how many nodes wait and how many are needed, if this node knows.

        It is called from the thread that waits in `next_rendezvous`, about once a second at most.
        """
        self._joining.on_arrivals = listener

    def get_run_id(self) -> str:
        return self._me.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for a complete round. Raises torch's RendezvousError or one of ours."""
        self._is_out.clear()
        try:
            self._workers_store.drop()
            self._last = self._joining.run(self._last)
            return self._info(self._last)
        except RuntimeError as error:  # of torch's client
            raise StoreLost(self._me.endpoint) from error
        finally:
            self._is_out.set()

    def is_closed(self) -> bool:
        return self._board.progress().is_closed

    def set_closed(self) -> None:
        """End the job for every node; whoever waits is told at once."""
        if self._board.close():
            number = self._board.progress().round + 1
            self._board.seal(number)
            waiting = [entry["node"] for entry in self._board.read_log(number) if "node" in entry]
            self._board.send(waiting, {"kind": "closed", "round": number})

    def num_nodes_waiting(self) -> int:
        """How many nodes wait that a new round would take in. The store is not asked."""
        number, count = self._wanted
        return count if self._last is not None and number > self._last.number else 0

    def shutdown(self) -> bool:
        """Close the rendezvous and let go of the store, which ends if it is ours."""
        try:
            self.set_closed()
        except RuntimeError:
            return False
        finally:
            self.release()
        return True

    def leave(self) -> None:
        """Take this node out; the others go on at once without it."""
        if not self._is_out.is_set():
            self._inbox.put(LEAVE)
            self._is_out.wait(_LEAVE_SECONDS)
        elif self._last is not None:
            self._joining.say_goodbye(self._board.progress().round + 1, self._me.node)

    @property
    def member(self) -> str:
        """What the other nodes know this one by."""
        return self._me.node

    def bury(self, member: str) -> None:
        """Take a node out that is known to be gone: nobody waits until it is missed."""
        self._joining.say_goodbye(self._board.progress().round + 1, member)

    def release(self) -> None:
        """Stop listening, and end the stores that live here. Does nothing the second time."""
        if self._is_released:
            return
        self._is_released = True
        if not self._is_out.is_set():
            self.leave()
        self._mailbox.stop()
        if self._last is not None:
            with suppress(RuntimeError):
                others = self._last.world_size - 1 if self.hosts_store else 0
                await_byes(self._board, self._last.number, others)
        self._workers_store.close()

    def _info(self, placed: Placed) -> RendezvousInfo:
        store = PrefixStore(f"dlrover/round/{self._me.run_id}/{placed.number}", self._store)
        master = None if placed.master is None else RendezvousStoreInfo(*placed.master)
        # torch's annotation does not allow None, its property and its agent do.
        return RendezvousInfo(store, placed.rank, placed.world_size, master)  # type: ignore[arg-type]

    def _receive(self, message: Message, board: JobBoard) -> None:
        """In the mailbox's thread, also while workers run."""
        match message:
            case {"kind": "call", "round": int(number)}:
                board.ring(number, {"kind": "here", "node": self._me.node})
            case {"kind": "wanted", "round": int(number), "count": int(count)}:
                self._wanted = (number, count)
            case _:
                self._inbox.put(message)
