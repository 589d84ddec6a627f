"""A connection whose every wait ends at one deadline: connecting, TLS, sending and reading.

A time-out of a socket is for one wait. A server that sends a byte now and then starts it anew with
each of them, so here it is set, before each wait, to what is left of the whole.
"""

import io
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from dlrover_cli.services.lookup import Lookup

Clock = Callable[[], float]
_CHUNK = 1 << 16


class DeadlineSocket:
    """As much of a socket as `http.client` uses."""

    def __init__(self, sock: socket.socket, deadline: float, clock: Clock) -> None:
        self._socket = sock
        self._clock = clock
        self.deadline = deadline
        """A point of the clock; moved for each exchange."""

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._set_timeout()
            rest = rest[self._socket.send(rest[:_CHUNK]) :]

    def recv_into(self, buffer: Any) -> int:
        self._set_timeout()
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self), _CHUNK)

    def handshake(self) -> None:
        self._set_timeout()
        cast(ssl.SSLSocket, self._socket).do_handshake()

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: neither its end nor more of it."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        return not ready.poll(0)

    def close(self) -> None:
        self._socket.close()

    def _set_timeout(self) -> None:
        self._socket.settimeout(left(self.deadline, self._clock))


class _Incoming(io.RawIOBase):
    """What can be read from it."""

    def __init__(self, source: DeadlineSocket) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.recv_into(buffer)


def connect(
    lookup: Lookup,
    host: str,
    tls: ssl.SSLContext | None,
    deadline: float,
    clock: Clock = time.monotonic,
) -> DeadlineSocket:
    """A connection to the first address that takes one. Raises OSError, also for TLS."""
    addresses = lookup.addresses(left(deadline, clock))
    for number, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
        sock = socket.socket(family, kind, protocol)
        try:
            # One that swallows packets must not leave the next ones without time.
            sock.settimeout(left(deadline, clock) / (len(addresses) + 1 - number))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _secured(sock, host, tls, deadline, clock)
        except OSError as error:
            sock.close()
            if number == len(addresses) or isinstance(error, ssl.SSLError):
                raise
        except BaseException:
            sock.close()
            raise
    raise OSError("its name has no address")


def left(deadline: float, clock: Clock) -> float:
    """Seconds until the deadline; TimeoutError if it has passed."""
    seconds = deadline - clock()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _secured(
    sock: socket.socket, host: str, tls: ssl.SSLContext | None, deadline: float, clock: Clock
) -> DeadlineSocket:
    if tls is None:
        return DeadlineSocket(sock, deadline, clock)
    wrapped = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    secured = DeadlineSocket(wrapped, deadline, clock)
    try:
        secured.handshake()
    except BaseException:
        wrapped.close()
        raise
    return secured
