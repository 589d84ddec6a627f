"""Servers on loopback that behave as badly as they are told to, byte by byte."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEM = Path(__file__).parent / "tls" / "localhost.pem"
PATIENCE = 10.0
"""After that no connection is served any more, whatever its test does."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client has sent."""

    path: str
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Server:
    """One server; `stopping` ends those behaviours that have no end."""

    url: str
    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)


Behaviour = Callable[[socket.socket, Request, Server], bool | None]
"""Answers one request; True keeps the connection for another."""


@contextlib.contextmanager
def serving(behaviour: Behaviour, *, tls: bool = False, handshake: bool = True) -> Iterator[Server]:
    """A server for the block; without the handshake it never says a word of TLS."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listener.getsockname()[1]
    server = Server(f"http{'s' if tls else ''}://127.0.0.1:{port}", port)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            server.connections += 1
            thread = threading.Thread(target=serve, args=(connection,), daemon=True)
            thread.start()
            threads.append(thread)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            if tls and not handshake:
                server.stopping.wait(PATIENCE)
                return
            if tls:
                connection = context.wrap_socket(connection, server_side=True)
                stack.callback(connection.close)
            with connection.makefile("rb") as incoming:
                while (request := _read(incoming)) is not None:
                    server.requests.append(request)
                    if not behaviour(connection, request, server):
                        return

    accepting = threading.Thread(target=accept, name="bad-server", daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        server.stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def answer(
    body: bytes | str | dict[str, Any],
    status: str = "200 OK",
    *,
    length: int | None = None,
    headers: Mapping[str, str] | None = None,
    keep: bool = False,
) -> Behaviour:
    """A whole answer, in one piece."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    content = content.encode() if isinstance(content, str) else content
    lines = {"Content-Length": str(len(content) if length is None else length), **(headers or {})}

    def behave(connection: socket.socket, request: Request, server: Server) -> bool:
        connection.sendall(head(status, lines) + content)
        return keep

    return behave


def head(status: str = "200 OK", headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {text}" for name, text in (headers or {}).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def drip(connection: socket.socket, server: Server, data: bytes) -> None:
    """Send a byte now and then, over and over, as long as anybody listens."""
    while True:
        for number in range(len(data)):
            if server.stopping.wait(0.02):
                return
            connection.sendall(data[number : number + 1])


def reset(connection: socket.socket) -> None:
    """Break the connection off, instead of closing it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


def _read(incoming: Any) -> Request | None:
    first = incoming.readline()
    if not first:
        return None
    headers = {}
    while (line := incoming.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = incoming.read(int(headers.get("content-length", "0")))
    return Request(first.split()[1].decode(), headers, body)
