"""A client that asks one service: POST a body, get a body, within a deadline for the whole.

No Python HTTP client has such a deadline: slow names, slow TLS and servers that drip outlive their
time-outs. Here every wait is for what is left. Redirects are not followed, proxies of the
environment are not used, and what is secret is in no message.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from http.client import responses as reasons
from pathlib import Path
from typing import cast

from dlrover_cli.errors import UsageError
from dlrover_cli.services.address import ServiceAddress
from dlrover_cli.services.bodies import BadBody, has_small_rest, read_body, read_start
from dlrover_cli.services.breaker import Breaker
from dlrover_cli.services.faults import (
    BadAnswer,
    BadStatus,
    ServiceFailed,
    ServiceNotAsked,
    ServiceSilent,
    ServiceUnreachable,
    shown,
)
from dlrover_cli.services.in_words import in_words
from dlrover_cli.services.lookup import Lookup, Resolve, system_resolve
from dlrover_cli.services.secrets import read_token
from dlrover_cli.services.sockets import Clock, DeadlineSocket, connect

_MOST_IDLE = 32


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a service is asked."""

    address: ServiceAddress
    timeout: float
    """Seconds for a whole exchange."""
    token_file: Path | None = None
    """Its first line is sent as a bearer token; read anew each time, since tokens are renewed."""
    ca_file: Path | None = None
    """Who vouches for the service, in place of those whom the system trusts."""
    accepts: Container[int] = (200,)
    """The statuses that are a success; of others there is no body."""
    wants_body: bool = True
    """Whether what it says beside such a status matters; else nothing in there is an error."""
    has_breaker: bool = True
    """Whether a service that failed is left alone for a while; False for who paces himself."""
    clock: Clock = field(default=time.monotonic, repr=False)
    resolve: Resolve = field(default=system_resolve, repr=False)


class ServiceClient:
    """Asks one service, from any number of threads; connections are kept and used again."""

    def __init__(self, options: ServiceOptions) -> None:
        """Raises UsageError if a file of the options cannot be used."""
        self._options = options
        self._address = options.address
        self._tls = _tls(options)
        if options.token_file is not None:
            read_token(options.token_file)
        self._lookup = Lookup(options.address.host, options.address.port, options.resolve)
        self._breaker = Breaker(options.timeout, options.clock)
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._was_reached = False

    @property
    def was_reached(self) -> bool:
        """Whether there was ever a connection, whatever came of it."""
        return self._was_reached

    def __repr__(self) -> str:
        return f"ServiceClient({self._address})"

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of the answer. Raises ServiceFailed, whatever happens, within the deadline."""
        target = f"{self._address.path}/{path}" if path else self._address.path or "/"
        url = f"{self._address}/{path}" if path else str(self._address)
        ago = self._breaker.refuses() if self._options.has_breaker else None
        if ago is not None:
            what = f"was not asked: it failed {ago:.1f} s ago, and is left alone for a while"
            raise ServiceNotAsked(url, what)
        try:
            answer = self._exchange(url, target, body, headers or {})
        except (ServiceSilent, ServiceUnreachable) as error:
            self._breaker.failed(silently=isinstance(error, ServiceSilent))
            raise
        except ServiceFailed:
            self._breaker.succeeded()  # it is there, whatever it says
            raise
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.succeeded()
        return answer

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, url: str, target: str, body: bytes, more: Mapping[str, str]) -> bytes:
        deadline = self._options.clock() + self._options.timeout
        try:
            return self._ask(_Question(url, self._head(target, len(body), more) + body), deadline)
        except ServiceFailed:
            raise
        except UsageError as error:
            raise ServiceUnreachable(url, f"was not asked: {error.message}") from None
        except BadBody as error:
            raise BadAnswer(url, str(error)) from None
        except TimeoutError:
            seconds = f"{self._options.timeout:g} s"
            raise ServiceSilent(url, f"did not answer within {seconds}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ServiceUnreachable(url, in_words(error)) from None

    def _ask(self, question: "_Question", deadline: float) -> bytes:
        connection, response = self._begin(question, deadline)
        is_done = False
        try:
            if response.status not in self._options.accepts:
                raise _bad_status(question.url, response, self._address)
            if not self._options.wants_body:
                is_done = has_small_rest(response) and not response.will_close
                return b""
            body = read_body(response)
            is_done = not response.will_close
            return body
        finally:
            self._keep(connection) if is_done else connection.close()

    def _begin(self, question: "_Question", deadline: float) -> "tuple[_Connection, HTTPResponse]":
        kept = self._kept(deadline)
        if kept is not None:
            # It may have been closed over there while it was idle; then nothing was answered.
            with contextlib.suppress(ConnectionError):
                return kept, kept.begin(question)
        connection = self._connected(deadline)
        return connection, connection.begin(question)

    def _connected(self, deadline: float) -> "_Connection":
        options = self._options
        sock = connect(self._lookup, self._address.host, self._tls, deadline, options.clock)
        self._was_reached = True
        return _Connection(sock)

    def _kept(self, deadline: float) -> "_Connection | None":
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.wire.is_quiet():
                connection.wire.deadline = deadline
                return connection
            connection.close()

    def _keep(self, connection: "_Connection") -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _head(self, target: str, length: int, more: Mapping[str, str]) -> bytes:
        headers = {
            "Host": self._address.authority,
            "User-Agent": "dlrover-run",
            "Content-Type": "application/json",
            "Content-Length": str(length),
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            **more,
        }
        if self._options.token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(self._options.token_file)}"
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


@dataclass(frozen=True, slots=True)
class _Question:
    url: str
    request: bytes = field(repr=False)
    """As it is sent, head and body in one piece: a server that waits for one is never behind."""


class _Connection:
    """One connection, used for one exchange after the other."""

    def __init__(self, wire: DeadlineSocket) -> None:
        self.wire = wire

    def begin(self, question: _Question) -> HTTPResponse:
        """Ask, and read as far as the headers of the answer; on failure it is closed."""
        try:
            return self._asked(question)
        except BaseException:
            self.close()
            raise

    def _asked(self, question: _Question) -> HTTPResponse:
        try:
            self.wire.sendall(question.request)
        except ConnectionError as error:
            # It may have said why before it hung up: that the body is too large, for example.
            with contextlib.suppress(ConnectionError):
                return self._answer()
            raise error from None
        return self._answer()

    def _answer(self) -> HTTPResponse:
        response = HTTPResponse(cast(socket.socket, self.wire), method="POST")
        try:
            response.begin()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        self.wire.close()


def _bad_status(url: str, response: HTTPResponse, asked: ServiceAddress) -> ServiceFailed:
    status = response.status
    reason = reasons.get(status, "")
    what = f"answered {status} {reason}".rstrip()
    if location := response.getheader("Location"):
        where = shown(asked.hide(location), 100)
        what += f" and points to {where}; redirects are not followed"
    try:
        text = shown(asked.hide(read_start(response)))
    except TimeoutError:
        # The next question would cost a whole deadline again, as if there had been no answer.
        return ServiceSilent(url, f"{what}, and did not say why in time")
    except (OSError, HTTPException, ValueError):
        text = ""  # the status says enough
    return BadStatus(url, f"{what}: {text}" if text else what, status=status)


def _tls(options: ServiceOptions) -> ssl.SSLContext | None:
    if not options.address.is_tls:
        return None
    try:
        return ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:  # ssl.SSLError is one, too
        raise UsageError(
            f"the CA file {options.ca_file} cannot be used: {error.strerror or error}",
            hint="It holds certificates in PEM form.",
        ) from None
