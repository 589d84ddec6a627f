"""Finding a host's addresses within a deadline, which the system's own function does not have."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

AddressInfo = tuple[int, int, int, str, Any]
"""Family, type, protocol, canonical name and socket address, as `socket.getaddrinfo` has them."""
Resolve = Callable[[str, int], list[AddressInfo]]


def system_resolve(host: str, port: int) -> list[AddressInfo]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class Lookup:
    """The addresses of one host."""

    def __init__(self, host: str, port: int, resolve: Resolve = system_resolve) -> None:
        self._host = host
        self._port = port
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: Future[list[AddressInfo]] | None = None

    def addresses(self, timeout: float) -> list[AddressInfo]:
        """What the resolver says. Raises TimeoutError or OSError."""
        if numeric := _numeric(self._host, self._port):
            return numeric
        with self._lock:
            if self._running is None:
                self._running = self._start()
            running = self._running
        return running.result(timeout)

    def _start(self) -> "Future[list[AddressInfo]]":
        """Ask in a thread, which nothing can end: it may outlive who asked, but there is only one.

        It is a daemon and holds nothing; later calls wait for it instead of starting another.
        """
        found: Future[list[AddressInfo]] = Future()
        threading.Thread(
            target=self._look_up, args=(found,), name="service-lookup", daemon=True
        ).start()
        return found

    def _look_up(self, found: "Future[list[AddressInfo]]") -> None:
        try:
            addresses = self._resolve(self._host, self._port)
        except Exception as error:  # noqa: BLE001 - it is raised again by who waits for it
            self._done()
            found.set_exception(error)
        else:
            self._done()
            found.set_result(addresses)

    def _done(self) -> None:
        with self._lock:
            self._running = None


def _numeric(host: str, port: int) -> list[AddressInfo]:
    """Of a host that is an address already: nobody has to be asked."""
    try:
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except OSError:
        return []
