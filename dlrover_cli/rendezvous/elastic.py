"""The rendezvous `dlrover`: nodes meet on a store, one of them coordinates, all wait for mail."""

import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from torch.distributed import PrefixStore, Store
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from dlrover_cli.errors import LaunchError, RendezvousFailed
from dlrover_cli.rendezvous.coordinator import Coordinator
from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.job_board import JobBoard, Message, Outcome
from dlrover_cli.rendezvous.mailbox import Mailbox, await_byes
from dlrover_cli.rendezvous.store_host import StoreHost

_LEAVE_SECONDS = 2.0
_LEAVE: Message = {"kind": "leave"}
_LOST: Message = {"kind": "lost"}


class NodesMissing(RendezvousFailed, RendezvousTimeoutError):
    """Too few nodes came in time."""


class StoreLost(RendezvousFailed, RendezvousConnectionError):
    """The store where the nodes meet is gone."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """This node's part in a complete round."""

    number: int
    rank: int
    world_size: int
    master: tuple[str, int] | None


class ElasticRendezvous(RendezvousHandler):
    """One node's part in the rounds of a job. See `job_board` for what is in the store.

    A node announces itself and waits for a message; the first one of a round, or whoever takes over
    from it, coordinates and sends them. That is five operations on the store per node and round.
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
        self._store = store
        self._run_id = run_id
        self._rules = rules
        self._endpoint = endpoint
        self._local_addr = local_addr
        self.hosts_store = False
        """Whether the store where the nodes meet ends with this node."""
        self._host = host
        self._make_host = make_host
        self._workers_port: int | None = None
        self._node = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._board = JobBoard(store, run_id)
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._round = 0
        self._world_size = 1
        self._wanted = 0
        self._is_released = False
        self._is_out = threading.Event()
        self._is_out.set()
        self._mailbox = Mailbox(self._board, f"mail/{self._node}", self._receive, self._lose)

    # ---- torch's interface ---------------------------------------------------------------------

    def get_backend(self) -> str:
        return "dlrover"

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_run_id(self) -> str:
        return self._run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for a complete round. Raises torch's RendezvousError or one of ours."""
        self._is_out.clear()
        try:
            self._wanted = 0
            self._drop_workers_store()
            placed = self._join()
            self._round, self._world_size = placed.number, placed.world_size
            return self._info(placed)
        except RuntimeError as error:  # of torch's client
            raise self._store_lost() from error
        finally:
            self._is_out.set()

    def is_closed(self) -> bool:
        return self._board.progress().is_closed

    def set_closed(self) -> None:
        """End the job for every node; whoever waits is told at once."""
        if self._board.close():
            number = self._board.progress().round + 1
            waiting = [entry["node"] for entry in self._board.read_log(number) if "node" in entry]
            self._board.send(waiting, {"kind": "closed", "round": number})

    def num_nodes_waiting(self) -> int:
        """How many nodes wait that a new round would take in; needs no question to the store."""
        return self._wanted

    def shutdown(self) -> bool:
        """Close the rendezvous and let go of the store, which ends if it is ours."""
        try:
            self.set_closed()
        except RuntimeError:
            return False
        finally:
            self.release()
        return True

    # ---- leaving -------------------------------------------------------------------------------

    def leave(self) -> None:
        """Take this node out; the others go on at once without it."""
        if not self._is_out.is_set():
            self._inbox.put(_LEAVE)
            self._is_out.wait(_LEAVE_SECONDS)
            return
        if self._round:
            self._say_goodbye(self._board.progress().round + 1)

    def release(self) -> None:
        """Stop listening, and end the stores that live here. Does nothing the second time."""
        if self._is_released:
            return
        self._is_released = True
        self._mailbox.stop()
        if self._round:
            with suppress(RuntimeError):
                await_byes(self._board, self._world_size - 1 if self.hosts_store else 0)
        if self._host is not None:
            self._host.close()

    def _say_goodbye(self, number: int) -> None:
        self._board.log(number, {"left": self._node})
        self._board.ring(number, {"kind": "left"})

    # ---- joining -------------------------------------------------------------------------------

    def _join(self) -> _Placed:
        progress = self._board.progress()
        deadline = time.monotonic() + self._rules.join_timeout
        if progress.round > 0 and self._round == 0:
            deadline = float("inf")  # the job runs: a spare waits as long as it does
        number = progress.round + 1
        while True:
            placed = self._take_part(number, deadline)
            if placed is not None:
                return placed
            number = self._board.progress().round + 1

    def _take_part(self, number: int, deadline: float) -> _Placed | None:
        """Wait for the end of one round; None if it ended without this node."""
        bounds = [self._rules.min_nodes, self._rules.max_nodes]
        self._board.log(number, {"node": self._node, "bounds": bounds})
        ticket = self._board.take_ticket(number)
        progress = self._board.progress()
        if progress.is_closed:
            raise RendezvousClosedError(f"the job {self._run_id!r} has ended")
        if progress.round >= number:
            return self._look_up(number)
        visit = _Visit(number, deadline, time.monotonic())
        if ticket == 1:
            visit.coordinator = self._coordinate(number, takes_over=False)
        elif ticket >= self._rules.min_nodes:
            self._board.ring(number, {"kind": "arrived"})
        try:
            return self._wait(visit)
        finally:
            if visit.coordinator is not None:
                visit.coordinator.stop()

    def _wait(self, visit: "_Visit") -> _Placed | None:
        while True:
            now = time.monotonic()
            until = now + self._rules.lease / 2
            coordinator = visit.coordinator
            if coordinator is not None:
                outcome, until = coordinator.step(now)
                if outcome is not None:
                    return self._placed(visit.number, outcome)
                if coordinator.has_expired(now):
                    coordinator.give_up({"kind": "expired"})
                    raise self._nodes_missing(coordinator.count)
            if now >= visit.deadline:
                self._withdraw(visit)
                raise self._nodes_missing(coordinator.count if coordinator else None)
            messages = self._messages(min(until, visit.deadline) - now)
            if not messages and coordinator is None and self._is_overdue(visit):
                return self._look_up(visit.number)
            for message in messages:
                if message.get("round", visit.number) == visit.number:
                    done = self._act_on(message, visit)
                    if done is not None:
                        return done.placed

    def _messages(self, seconds: float) -> list[Message]:
        """All that have come; waits for the first one."""
        messages = []
        with suppress(queue.Empty):
            messages.append(self._inbox.get(timeout=max(0.0, seconds)))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _act_on(self, message: Message, visit: "_Visit") -> "_Done | None":
        number = visit.number
        match message:
            case {"kind": "complete", "rank": rank, "world_size": size, "master": master}:
                return _Done(_Placed(number, rank, size, master and tuple(master)))
            case {"kind": "over"}:
                return _Done(None)
            case {"kind": "host"}:
                reply = {"kind": "hosting", "node": self._node, "address": self._open_store()}
                self._board.ring(number, reply)
            case {"kind": "closed"}:
                raise RendezvousClosedError(f"the job {self._run_id!r} has ended")
            case {"kind": "expired"}:
                raise self._nodes_missing(None)
            case {"kind": "refused", "bounds": bounds}:
                raise self._refused(bounds)
            case {"kind": "leave"}:
                self._withdraw(visit)
                raise RendezvousGracefulExitError("this node has left the rendezvous")
            case {"kind": "lost"}:
                raise self._store_lost()
            case _ if visit.coordinator is not None:
                visit.coordinator.hear(message, time.monotonic())
        return None

    def _is_overdue(self, visit: "_Visit") -> bool:
        """Look after the coordinator. True if the round has ended and its message did not come."""
        if self._board.progress().round >= visit.number:
            return True
        now, beat = time.monotonic(), self._board.beat(visit.number, 0)
        if beat != visit.beat:
            visit.beat, visit.beat_since = beat, now
        elif now - visit.beat_since >= self._rules.lease:
            former = self._board.coordinator(visit.number)
            if self._board.take_over(visit.number, former, self._node):
                visit.coordinator = self._coordinate(visit.number, takes_over=True)
            visit.beat_since = now
        return False

    def _coordinate(self, number: int, *, takes_over: bool) -> Coordinator:
        previous = self._board.outcome(number - 1)
        bounds = (self._rules.min_nodes, self._rules.max_nodes)
        coordinator = Coordinator(
            self._board,
            self._node,
            number,
            self._rules,
            previous,
            self._inbox.put,
            self._lose,
            now=time.monotonic(),
            takes_over=takes_over,
        )
        if previous is not None and previous.bounds != bounds:
            coordinator.give_up({"kind": "over"})
            coordinator.stop()
            raise self._refused(previous.bounds)
        return coordinator

    def _withdraw(self, visit: "_Visit") -> None:
        if visit.coordinator is not None:
            visit.coordinator.give_up({"kind": "over"})
        else:
            self._say_goodbye(visit.number)

    def _look_up(self, number: int) -> _Placed | None:
        outcome = self._board.outcome(number)
        return None if outcome is None else self._placed(number, outcome)

    def _placed(self, number: int, outcome: Outcome) -> _Placed | None:
        rank = outcome.rank_of(self._node)
        if rank is None:
            return None
        return _Placed(number, rank, len(outcome.members), outcome.master)

    def _info(self, placed: _Placed) -> RendezvousInfo:
        store = PrefixStore(f"dlrover/round/{self._run_id}/{placed.number}", self._store)
        master = None if placed.master is None else RendezvousStoreInfo(*placed.master)
        # torch's annotation does not allow None, its property and its agent do.
        return RendezvousInfo(store, placed.rank, placed.world_size, master)  # type: ignore[arg-type]

    # ---- the workers' store --------------------------------------------------------------------

    def _open_store(self) -> tuple[str, int] | None:
        """A new store for the workers of one round, in which nothing of earlier ones is left."""
        try:
            if self._host is None:
                self._host = self._make_host()
            self._drop_workers_store()
            self._workers_port = self._host.open()
        except LaunchError:  # the agent will open one itself, and say why it cannot
            return None
        return self._local_addr or socket.getfqdn(), self._workers_port

    def _drop_workers_store(self) -> None:
        port, self._workers_port = self._workers_port, None
        if port is not None and self._host is not None:
            with suppress(LaunchError):
                self._host.drop(port)

    # ---- mail ----------------------------------------------------------------------------------

    def _receive(self, message: Message, board: JobBoard) -> None:
        """In the mailbox's thread, also while workers run."""
        match message:
            case {"kind": "call", "round": int(number)}:
                board.ring(number, {"kind": "here", "node": self._node})
            case {"kind": "wanted", "count": int(count)}:
                self._wanted = count
            case _:
                self._inbox.put(message)

    def _lose(self, error: BaseException) -> None:
        self._inbox.put(_LOST)

    # ---- sentences -----------------------------------------------------------------------------

    def _nodes_missing(self, count: int | None) -> NodesMissing:
        came = "" if count is None else f": {count} came, and {self._rules.min_nodes} are needed"
        return NodesMissing(
            f"the nodes did not come together within {self._rules.join_timeout:g} s{came}",
            hint="check that every node was started with the same --nnodes, --rdzv-id and "
            "--rdzv-endpoint; --rdzv-conf join_timeout=SECONDS allows more time",
        )

    def _refused(self, bounds: tuple[int, int]) -> RendezvousFailed:
        ours = _nnodes(self._rules.min_nodes, self._rules.max_nodes)
        return RendezvousFailed(
            f"this node was started with --nnodes={ours}, and the job {self._run_id!r} with "
            f"--nnodes={_nnodes(*bounds)}",
            hint="start every node of a job with the same --nnodes",
        )

    def _store_lost(self) -> StoreLost:
        return StoreLost(
            f"the store of the rendezvous at {self._endpoint} is gone",
            hint="the node that hosts it has ended; `dlrover-job rendezvous serve` hosts one apart "
            "from the nodes",
        )


@dataclass(slots=True)
class _Visit:
    """One node's wait for the end of one round."""

    number: int
    deadline: float
    beat_since: float
    beat: int = -1
    coordinator: Coordinator | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    placed: _Placed | None


def _nnodes(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}:{most}"
