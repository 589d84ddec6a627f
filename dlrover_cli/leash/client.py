"""The agent's end of the leash: listens, sends beats, and notices a manager that is gone."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dlrover_cli.leash.wire import LeashAddress, Lines, Message, keep_prompt, line_of

_TRY_AGAIN_SECONDS = 0.2
_CLOSE_SECONDS = 2.0
_MOST_UNTOLD = 100


@dataclass(frozen=True, slots=True)
class PeerLost:
    """An agent of the job is gone, with its machine or without."""

    host: str
    member: str
    """Its name in the rendezvous; empty if it never had one."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The manager has taken this node out of the job."""

    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The manager's user wants something of this node; the answer goes back with its number."""

    number: int
    question: Message


@dataclass(frozen=True, slots=True)
class Unleashed:
    """The manager has not been heard of for a whole lease."""


class Leash:
    """Opened once per agent. `tell` may be called from any thread and never raises."""

    def __init__(self, address: LeashAddress) -> None:
        self._address = address
        self._post: Callable[[object], None] = lambda observation: None
        self._member = ""
        self._connection: socket.socket | None = None
        self._untold: deque[bytes] = deque(maxlen=_MOST_UNTOLD)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asks: dict[str, int] | None = None
        """The counters with which the job is about to start afresh, until the manager lets us."""
        self._may_go = threading.Event()
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="leash", daemon=True)

    @property
    def lease(self) -> float:
        return self._address.lease

    def start(self, post: Callable[[object], None], member: str) -> None:
        """Post PeerLost, Fenced, Asked and Unleashed from now on."""
        self._post, self._member = post, member
        self._heard = time.monotonic()
        self._thread.start()

    def tell(self, kind: str, /, **data: Any) -> None:
        """Send a message, or keep it until there is a connection."""
        with self._lock, suppress(OSError):
            if self._connection is not None:
                self._connection.sendall(line_of(kind, data))
            elif kind != "beat":
                self._untold.append(line_of(kind, data))

    @property
    def asks_again(self) -> bool:
        """Whether `ask_for_place` is to be called before the job starts afresh."""
        return self._address.asks_again

    def ask_for_place(self, counters: Mapping[str, int]) -> None:
        """Wait until the manager lets us go on; one that does not will fence us, and we are closed.

        The question is asked again with each new connection: an answer may be lost with the old.
        """
        with self._lock:
            self._asks = dict(counters)
            self._may_go.clear()
        self.tell("restarting", **counters)
        if not self._stop.is_set():  # else nobody will set it again
            self._may_go.wait()

    def close(self) -> None:
        """End the thread and the connection. Does nothing the second time."""
        self._stop.set()
        self._may_go.set()
        with self._lock, suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError, ValueError):
                self._hold(self._connected())
            if time.monotonic() - self._heard > self.lease and not self._stop.is_set():
                self._post(Unleashed())
                return
            self._stop.wait(_TRY_AGAIN_SECONDS)

    def _connected(self) -> socket.socket:
        address = self._address
        connection = socket.create_connection((address.host, address.port), address.lease / 2)
        keep_prompt(connection, address.lease / 4)
        hello: Message = {
            "token": address.token,
            "agent": address.agent,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "node": address.node,
            "member": self._member,
        }
        with self._lock:
            if self._asks is not None:
                hello["restarting"] = self._asks
            connection.sendall(line_of("hello", hello) + b"".join(self._untold))
            self._untold.clear()
            self._connection = connection
        return connection

    def _hold(self, connection: socket.socket) -> None:
        """Listen until the connection breaks, or nothing has come for a lease."""
        lines = Lines()
        try:
            while not self._stop.is_set() and time.monotonic() - self._heard <= self.lease:
                try:
                    data = connection.recv(65536)
                except TimeoutError:
                    self.tell("beat")
                    continue
                now = time.monotonic()
                if not data or now - self._heard > self.lease:
                    return  # what was sent before we fell asleep does not count as heard
                self._heard = now
                for message in lines.feed(data):
                    self._take(message)
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def _take(self, message: Message) -> None:
        match message:
            case {"kind": "lost", "host": str(host), "member": str(member)}:
                self._post(PeerLost(host, member))
            case {"kind": "fence", "reason": str(reason)}:
                self._post(Fenced(reason))
            case {"kind": "go", "generation": int(generation)}:
                self._hear_go(generation)
            case {"kind": "ask", "number": int(number), "question": dict(question)}:
                self._post(Asked(number, question))
            case {"kind": "beat"}:
                self.tell("beat")
            case _:
                pass  # of a newer manager

    def _hear_go(self, generation: int) -> None:
        with self._lock:
            if self._asks is not None and self._asks["generation"] == generation:
                self._asks = None
                self._may_go.set()
