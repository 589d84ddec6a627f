"""One agent on one node, from its actor's creation to its end: a thread of the manager's process.

The thread waits for Ray so that the manager need not. It ends the agent when told to, brings over
what the agent wrote where the node cannot write to the run directory itself, and posts the end.
"""

import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from types import ModuleType
from typing import Any

from dlrover_cli.manager.cluster import AgentEnded, AgentUnseen, Node, Post
from dlrover_cli.platforms.ray.nodes import NodeBook
from dlrover_cli.platforms.ray.remotes import Remotes
from dlrover_cli.platforms.ray.shipping import Shipment

_TICK_SECONDS = 0.1
_SHIP_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
_KILL_SECONDS = 3.0
_LAST_SHIPMENTS_SECONDS = 10.0


class _Order(Enum):
    STOP = auto()
    KILL = auto()


class PlacedAgent:
    """`stop`, `kill` and `join` may be called from any thread; the first two come back at once."""

    def __init__(
        self,
        ray: ModuleType,
        remotes: Remotes,
        book: NodeBook,
        node: Node,
        plan: dict[str, Any],
        shipment: Shipment,
        post: Post,
        say: Callable[[str], None],
        look: Callable[[], None],
        is_closing: Callable[[], bool],
    ) -> None:
        self._ray = ray
        self._remotes = remotes
        self._book = book
        self._node = node
        self._plan = plan
        self._shipment = shipment
        self._post = post
        self._say = say
        self._look = look
        self._is_closing = is_closing
        self._agent: str = plan["agent"]
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"ray-{self._agent}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end in good order."""
        self._orders.put(_Order.STOP)

    def kill(self) -> None:
        """End it at once."""
        self._orders.put(_Order.KILL)

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        errors = self._ray.exceptions
        actor = None
        try:
            actor = self._remotes.agent_host(self._node.id)
            self._post(AgentEnded(self._agent, self._live(actor)))
        except (errors.ActorUnschedulableError, errors.TaskUnschedulableError):
            self._settle()
            self._post(AgentEnded(self._agent, None))  # it has never been started
        except Exception as error:  # noqa: BLE001 - whatever Ray's own code may raise
            self._settle()
            self._post(AgentUnseen(self._agent, _in_words(error)))
        finally:
            with suppress(Exception):
                self._ray.kill(actor)

    def _settle(self) -> None:
        """Whoever hears of the agent's end knows already whether its node lives."""
        with suppress(Exception):  # the cluster itself may be gone; others find out
            self._book.settle(self._node, self._is_closing)
            self._look()

    def _live(self, actor: Any) -> int | None:
        """The agent's exit code; None if it was not even started."""
        starting = actor.start.remote(self._plan)
        if not self._wait_for_start(starting):
            return None
        started = self._ray.get(starting)
        end = self._wait_for_end(actor, None if started["shares"] else self._shipment)
        if not started["shares"]:
            self._ship_the_rest(actor)
        self._ray.kill(actor)  # its resources are free before anybody hears of the end
        return end

    def _wait_for_start(self, starting: Any) -> bool:
        complain_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ready, _ = self._ray.wait([starting], timeout=_TICK_SECONDS)
            if ready:
                return True
            if self._next_order() is not None:
                return False
            if time.monotonic() >= complain_at:
                complain_at = float("inf")
                self._say(
                    f"{self._agent} still waits for {self._node.hostname}: what it needs is in use "
                    "there, or its Ray is slow to start a process (see `ray status`)"
                )

    def _wait_for_end(self, actor: Any, shipment: Shipment | None) -> int | None:
        errors = self._ray.exceptions
        ending = actor.wait.remote()
        killed_at = ship_at = float("inf")
        if shipment is not None:
            ship_at = time.monotonic()
        while True:
            ready, _ = self._ray.wait([ending], timeout=_TICK_SECONDS)
            if ready:
                try:
                    code: int | None = self._ray.get(ending)
                    return code
                except errors.ActorUnavailableError:  # for now: the agent may be well
                    ending = actor.wait.remote()
            match self._next_order():
                case _Order.STOP:
                    actor.signal.remote(int(signal.SIGTERM))
                case _Order.KILL:
                    actor.signal.remote(int(signal.SIGKILL))
                    killed_at = time.monotonic()
                case None:
                    pass
            now = time.monotonic()
            if now - killed_at >= _KILL_SECONDS:
                self._ray.kill(actor)  # and the kernel kills what is its child
                killed_at = float("inf")
            if shipment is not None and now >= ship_at:
                ship_at = now + _SHIP_SECONDS
                self._ship(actor, shipment)

    def _ship(self, actor: Any, shipment: Shipment) -> bool:
        """Whether there may be more."""
        try:
            parts = self._ray.get(actor.read.remote(shipment.seen), timeout=_SHIP_SECONDS * 5)
        except (self._ray.exceptions.ActorUnavailableError, self._ray.exceptions.GetTimeoutError):
            return False
        shipment.take(parts)
        return bool(parts)

    def _ship_the_rest(self, actor: Any) -> None:
        deadline = time.monotonic() + _LAST_SHIPMENTS_SECONDS
        while self._ship(actor, self._shipment):
            if time.monotonic() >= deadline:
                self._say(f"not all that {self._agent} wrote could be brought over in time")
                break
        self._ray.get(actor.forget.remote(), timeout=_SHIP_SECONDS * 5)

    def _next_order(self) -> _Order | None:
        try:
            return self._orders.get_nowait()
        except queue.Empty:
            return None


def _in_words(error: Exception) -> str:
    return f"Ray lost it: {' '.join(str(error).split())[:300]}"
