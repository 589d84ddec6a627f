"""The manager's end of all leashes: one thread, one selector, whatever the number of agents."""

import hmac
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dlrover_cli.errors import LaunchError
from dlrover_cli.leash.wire import LeashAddress, Lines, Message, keep_prompt, line_of

_BACKLOG = 1024
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """An agent has connected, for the first time or again."""

    agent: str
    facts: Message


@dataclass(frozen=True, slots=True)
class Said:
    """A message of an agent."""

    agent: str
    message: Message


@dataclass(frozen=True, slots=True)
class Departed:
    """The connection of an agent is gone, or it has not been heard of for a lease."""

    agent: str
    was_silent: bool
    """Its machine may be gone, and so may the network: it ends itself after another lease."""


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    lines: Lines = field(default_factory=Lines)
    agent: str = ""
    heard: float = field(default_factory=time.monotonic)


class LeashServer:
    """Posts Arrived, Said and Departed. `send` and `close` may be called from any thread."""

    def __init__(
        self,
        host: str,
        post: Callable[[object], None],
        *,
        lease: float = 5.0,
        port: int = 0,
        asks_again: bool = False,
    ) -> None:
        """Listen at an address that the agents can reach. Raises LaunchError."""
        self._asks_again = asks_again
        self._post = post
        self._lease = lease
        self._token = secrets.token_hex(16)
        self._host = host
        self._by_agent: dict[str, _Connection] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        try:
            self._listener = socket.create_server(("", port), backlog=_BACKLOG)
        except OSError as error:
            raise LaunchError(
                f"cannot listen for the agents of the job: {error.strerror}",
                hint="check the limits on open files and ports",
            ) from error
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="leashes", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def address_for(self, agent: str, node: str) -> LeashAddress:
        """What the agent has to be given."""
        return LeashAddress(
            self._host, self.port, self._token, agent, node, self._lease, self._asks_again
        )

    def send(self, agent: str, kind: str, /, **data: Any) -> bool:
        """Whether it could be sent, which does not mean that it was read."""
        with self._lock:
            connection = self._by_agent.get(agent)
            if connection is None:
                return False
            try:
                connection.sock.sendall(line_of(kind, data))
            except OSError:
                return False
            return True

    def agents(self) -> list[str]:
        """Those that are connected."""
        with self._lock:
            return sorted(self._by_agent)

    def broadcast(self, kind: str, /, *, but: str = "", **data: Any) -> None:
        """Send to every agent that is connected, one excepted."""
        with self._lock:
            agents = [agent for agent in self._by_agent if agent != but]
        for agent in agents:
            self.send(agent, kind, **data)

    def close(self) -> None:
        """End all connections. Does nothing the second time."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        pause = self._lease / 4
        beat_at = time.monotonic() + pause
        while not self._stop.is_set():
            for key, _ in self._selector.select(min(0.2, pause)):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + pause
                self.broadcast("beat")
                self._drop_silent(now)
        for connection in self._connections():
            connection.sock.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self._listener.accept()
            keep_prompt(sock, self._lease / 4)
            self._selector.register(sock, selectors.EVENT_READ, _Connection(sock))

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(65536)
            messages = connection.lines.feed(data)
        except (OSError, ValueError):
            data, messages = b"", []
        if not data:
            self._drop(connection, was_silent=False)
            return
        connection.heard = time.monotonic()
        for message in messages:
            self._take(connection, message)

    def _take(self, connection: _Connection, message: Message) -> None:
        if not connection.agent:
            self._welcome(connection, message)
        elif message["kind"] != "beat":
            self._post(Said(connection.agent, message))

    def _welcome(self, connection: _Connection, message: Message) -> None:
        match message:
            case {"kind": "hello", "token": str(token), "agent": str(agent)} if self._trusts(token):
                connection.agent = agent
                with self._lock:
                    before = self._by_agent.get(agent)
                    self._by_agent[agent] = connection
                if before is not None:
                    self._drop(before, was_silent=False)
                facts = {key: value for key, value in message.items() if key != "token"}
                self._post(Arrived(agent, facts))
            case _:
                self._drop(connection, was_silent=False)

    def _trusts(self, token: str) -> bool:
        # As bytes: a text that is not ASCII cannot be compared.
        return hmac.compare_digest(token.encode(errors="replace"), self._token.encode())

    def _drop_silent(self, now: float) -> None:
        for connection in self._connections():
            if now - connection.heard > self._lease:
                self._drop(connection, was_silent=True)

    def _drop(self, connection: _Connection, *, was_silent: bool) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        with self._lock:
            is_current = self._by_agent.get(connection.agent) is connection
            if is_current:
                del self._by_agent[connection.agent]
        if is_current:
            self._post(Departed(connection.agent, was_silent))

    def _connections(self) -> list[_Connection]:
        keys = list(self._selector.get_map().values())
        return [key.data for key in keys if key.data is not None]
