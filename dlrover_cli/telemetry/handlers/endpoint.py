"""A small HTTP server in a thread of its own, which ends at once when it is closed.

The library's loop looks twice a second whether it is to end, and looks its own name up with a
service of which nobody knows how long it takes; here nothing is polled, and nothing is looked up.
"""

import contextlib
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

_JOIN_SECONDS = 5.0


class Endpoint:
    """Serves ``app`` on a port until it is closed."""

    def __init__(self, host: str, port: int, app: Any) -> None:
        """Raises OSError if it cannot listen there."""
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server_class = type("Server", (_Server,), {"address_family": family})
        self._server: _Server = server_class((host, port), _QuietRequest)
        self._server.set_app(app)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="metrics-endpoint", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"

    def close(self) -> None:
        """Listen no more. Answers that are under way are not waited for."""
        self._closing.set()
        with contextlib.suppress(OSError):  # wakes the loop
            family, address = self._server.address_family, self._server.server_address
            with socket.socket(family, socket.SOCK_STREAM) as waker:
                waker.settimeout(_JOIN_SECONDS)
                waker.connect(_reachable(address))
        self._thread.join(_JOIN_SECONDS)
        self._server.server_close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._server.handle_request()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is nobody's business."""


class _QuietRequest(WSGIRequestHandler):
    timeout = 10.0
    """Seconds for which a connection may say nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Who scrapes when is not part of the run's story."""

    def address_string(self) -> str:
        return str(self.client_address[0])


def _reachable(address: Any) -> Any:
    """Where a server on all addresses can be reached."""
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return (anywhere.get(address[0], address[0]), *address[1:])
