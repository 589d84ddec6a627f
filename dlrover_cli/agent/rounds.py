"""Joining a round: the rendezvous, then one exchange in which everybody learns everything.

After the rendezvous each agent says hello in the round's store; node rank 0 calls everybody who
did and waits for one answer per node, assigns ranks, settles the counters and the address of the
workers' store, and welcomes each. That is a handful of store operations per agent, needs only set,
get, add, wait and check, and works on stores that hold keys of earlier rounds: hellos are numbered
through the store's whole life, and those of agents that are gone get no answer.
"""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import timedelta
from typing import Any

from torch.distributed import DistStoreError, PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
)
from torch.distributed.elastic.utils.distributed import get_free_port

from dlrover_cli.agent.agreement import wait_for_keys
from dlrover_cli.agent.ranks import Hello, Placement, agree_on_counters, place
from dlrover_cli.agent.terms import Differing, differing
from dlrover_cli.errors import LaunchError
from dlrover_cli.failover.decide import Counters
from dlrover_cli.rendezvous.aborted import refuse_if_aborted
from dlrover_cli.rendezvous.loading import as_rendezvous_info
from dlrover_cli.rendezvous.store_host import StoreHost

_PREFIX = "dlrover/rounds"
_ANSWER = timedelta(seconds=0.5)


@dataclass(frozen=True, slots=True)
class Round:
    """What an agent knows once it has joined."""

    store: Store
    control: Store
    rank: int
    world_size: int
    placement: Placement
    counters: Counters
    master_addr: str
    master_port: int
    workers_store: TCPStore | None
    """The server of the workers' store, where it lives in this process."""
    differing: Differing = field(default_factory=dict)
    """Settings that are not the same on every node; node rank 0 alone knows them."""
    check: int = 0
    """At which level the nodes are to be checked before workers start: the highest wish of all."""


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where the workers find their store, and the server if this process hosts it."""

    addr: str
    port: int
    server: TCPStore | None = None


class StoreForWorkers:
    """Gives every attempt a store that holds nothing of the attempts before it.

    The store that a rendezvous offers is used if no earlier attempt has used it; otherwise node
    rank 0 hosts a new one. Where the handler keeps its store to itself, the worker with rank 0
    hosts one at a free port, as under torchrun.
    """

    def __init__(
        self,
        handler: RendezvousHandler,
        addr: str | None,
        port: int | None,
        host: StoreHost | None = None,
    ) -> None:
        self._handler = handler
        self._addr = addr
        self._port = port
        self._host = host
        self._opened: int | None = None
        self.used: set[tuple[str, int]] = set()
        """What earlier attempts were given, by us or by whoever was node rank 0 then."""

    def choose(self, info: RendezvousInfo, local_addr: str | None) -> MasterAddress:
        """Called by node rank 0, once per attempt."""
        offered = info.bootstrap_store_info
        addr = self._addr or (offered.master_addr if offered else None)
        port = self._port or (offered.master_port if offered else None)
        addr = addr or local_addr or (socket.getfqdn() if info.world_size > 1 else "localhost")
        if port is not None and (addr, port) not in self.used:
            self.used.add((addr, port))
            return MasterAddress(addr, port)
        if not self._handler.use_agent_store:
            return MasterAddress(addr, get_free_port())  # type: ignore[no-untyped-call]
        if self._host is not None:
            self._opened = self._host.replace(self._opened)
        if self._opened is not None:
            return MasterAddress(addr, self._opened)
        self._host = None
        try:
            server = TCPStore("localhost", 0, is_master=True, multi_tenant=True)
        except RuntimeError as error:
            raise LaunchError(
                f"cannot open a port for the workers' store: {error}",
                hint="check the limits on open files and ports",
            ) from error
        return MasterAddress(addr, server.port, server)


def join(
    handler: RendezvousHandler,
    hello: Hello,
    store_for_workers: StoreForWorkers,
    local_addr: str | None,
    timeout: float,
) -> Round:
    """Meet the other agents and learn everything about the round. Blocks; run it off the loop."""
    forget_earlier_rounds(handler)
    refuse_if_aborted(handler)
    while True:
        info = _meet(handler)
        if info.world_size == 1:
            return _alone(info, hello, store_for_workers, local_addr)
        # Nodes that were all there a moment ago need not wait for each other as long as at first.
        patience = getattr(handler, "exchange_timeout", timeout)
        try:
            return _Exchange(info, hello, store_for_workers, local_addr, patience).run()
        except DistStoreError:
            if not hasattr(handler, "exchange_timeout"):
                raise
            # One of them died when the round was just complete: meet again, without it.


def _meet(handler: RendezvousHandler) -> RendezvousInfo:
    try:
        met = handler.next_rendezvous()
    except RendezvousClosedError:
        refuse_if_aborted(handler)
        raise
    return as_rendezvous_info(met, handler)


def _alone(
    info: RendezvousInfo, hello: Hello, store_for_workers: StoreForWorkers, local_addr: str | None
) -> Round:
    master = store_for_workers.choose(info, local_addr)
    (placement,) = place([hello])
    return Round(
        info.store,
        info.store,
        info.rank,
        1,
        placement,
        hello.counters,
        master.addr,
        master.port,
        master.server,
        check=hello.check,
    )


def forget_earlier_rounds(handler: RendezvousHandler) -> None:
    """Make torch's c10d handler open a new store for the workers in every round.

    It caches the address of its first round, so that later rounds would read that round's keys and
    a node that joins later would wait for an address that nobody publishes again.
    """
    for cached in ("_bootstrap_store_info", "_shared_tcp_store_server"):
        if hasattr(handler, cached):
            setattr(handler, cached, None)


class _Exchange:
    """One agent's part in the exchange of hellos."""

    def __init__(
        self,
        info: RendezvousInfo,
        hello: Hello,
        store_for_workers: StoreForWorkers,
        local_addr: str | None,
        timeout: float,
    ) -> None:
        self._info = info
        self._hello = hello
        self._store_for_workers = store_for_workers
        self._local_addr = local_addr
        self._timeout = timedelta(seconds=timeout)
        self._store = PrefixStore(_PREFIX, info.store)
        self._server: TCPStore | None = None
        self._differing: Differing = {}

    def run(self) -> Round:
        number = self._store.add("hellos", 1)
        used = sorted(self._store_for_workers.used)
        hello = {"rank": self._info.rank, "used": used, **self._hello.to_json()}
        self._put(f"hello/{number}", hello)
        if self._info.rank == 0:
            self._welcome_everybody(number)
        else:
            self._take(f"call/{number}")
            self._put(f"here/{number}", {})
        welcome = self._take(f"welcome/{number}")
        self._store_for_workers.used.add((welcome["master_addr"], welcome["master_port"]))
        return Round(
            self._info.store,
            PrefixStore(f"{_PREFIX}/{welcome['epoch']}", self._info.store),
            self._info.rank,
            self._info.world_size,
            Placement(*welcome["placement"]),
            Counters(**welcome["counters"]),
            welcome["master_addr"],
            welcome["master_port"],
            self._server,
            self._differing,
            welcome.get("check", 0),
        )

    def _welcome_everybody(self, own_number: int) -> None:
        number = int(self._store.get("welcomed")) if self._store.check(["welcomed"]) else 0
        numbers: dict[int, int] = {}
        hellos: dict[int, Hello] = {}
        deadline = time.monotonic() + self._timeout.total_seconds()
        while len(hellos) < self._info.world_size or not self._are_here(numbers, own_number):
            complete = len(hellos) == self._info.world_size and time.monotonic() < deadline
            if complete and not self._store.check([f"hello/{number + 1}"]):
                continue  # one of them is gone; whoever has its rank now will say hello
            number += 1
            said = self._take(f"hello/{number}")
            rank = said.pop("rank")
            self._store_for_workers.used.update(map(tuple, said.pop("used")))
            numbers[rank], hellos[rank] = number, Hello.from_json(said)
            self._put(f"call/{number}", {})
        self._store.set("welcomed", str(number))
        in_order = [hellos[rank] for rank in range(self._info.world_size)]
        self._differing = differing([hello.terms for hello in in_order])
        counters = asdict(agree_on_counters(in_order))
        check = max(hello.check for hello in in_order)
        master = self._store_for_workers.choose(self._info, self._local_addr)
        self._server = master.server
        for rank, placement in enumerate(place(in_order)):
            self._put(
                f"welcome/{numbers[rank]}",
                {
                    "epoch": number,
                    "placement": astuple(placement),
                    "counters": counters,
                    "master_addr": master.addr,
                    "master_port": master.port,
                    "check": check,
                },
            )

    def _are_here(self, numbers: Mapping[int, int], own_number: int) -> bool:
        """Whether all answer the call; waits a moment for those who have not yet."""
        keys = [f"here/{number}" for number in numbers.values() if number != own_number]
        return wait_for_keys(self._store, keys, _ANSWER)

    def _put(self, key: str, value: dict[str, Any]) -> None:
        self._store.set(key, json.dumps(value))

    def _take(self, key: str) -> dict[str, Any]:
        self._store.wait([key], self._timeout)
        value: dict[str, Any] = json.loads(self._store.get(key))
        return value
