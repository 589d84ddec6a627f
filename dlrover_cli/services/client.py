"""A client that asks one service: POST a body, get a body, within a deadline for the whole.

No Python HTTP client has such a deadline: slow names, slow TLS and servers that drip outlive their
time-outs. Here every wait is for what is left. Redirects are not followed, proxies of the
environment are not used, and what is secret is in no message.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.client import responses as reasons
from pathlib import Path
from typing import Any

from dlrover_cli.errors import UsageError
from dlrover_cli.services.address import ServiceAddress
from dlrover_cli.services.bodies import BadBody, read_body, read_start
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

    def __repr__(self) -> str:
        return f"ServiceClient({self._address})"

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of the answer. Raises ServiceFailed, whatever happens, within the deadline."""
        target = f"{self._address.path}/{path}" if path else self._address.path or "/"
        url = f"{self._address}/{path}" if path else str(self._address)
        ago = self._breaker.refuses()
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
            connection.hang_up()

    def _exchange(self, url: str, target: str, body: bytes, more: Mapping[str, str]) -> bytes:
        deadline = self._options.clock() + self._options.timeout
        try:
            question = _Question(url, target, body, self._headers(more))
            return self._ask(question, deadline)
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
        """Over a connection that is there, if there is one and it still works."""
        connection = self._kept(deadline)
        if connection is not None:
            try:
                response = connection.begin(question)
            except ConnectionError:
                connection.hang_up()  # closed over there while it was idle; nothing was answered
            except BaseException:
                connection.hang_up()
                raise
            else:
                return self._finish(question, connection, response)
        connection = self._connected(deadline)
        try:
            response = connection.begin(question)
        except BaseException:
            connection.hang_up()
            raise
        return self._finish(question, connection, response)

    def _finish(
        self, question: "_Question", connection: "_Connection", response: HTTPResponse
    ) -> bytes:
        is_done = False
        try:
            if response.status != 200:
                raise _bad_status(question.url, response)
            body = read_body(response)
            is_done = not response.will_close
            return body
        finally:
            self._keep(connection) if is_done else connection.hang_up()

    def _connected(self, deadline: float) -> "_Connection":
        options = self._options
        sock = connect(self._lookup, self._address.host, self._tls, deadline, options.clock)
        return _Connection(self._address.host, sock)

    def _kept(self, deadline: float) -> "_Connection | None":
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.wire.is_quiet():
                connection.wire.deadline = deadline
                return connection
            connection.hang_up()

    def _keep(self, connection: "_Connection") -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.hang_up()

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {
            "Host": self._address.authority,
            "User-Agent": "dlrover-run",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            **more,
        }
        if self._options.token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(self._options.token_file)}"
        return headers


@dataclass(frozen=True, slots=True)
class _Question:
    url: str
    target: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)


class _Connection(HTTPConnection):
    """One connection, which was made elsewhere and is not made again."""

    auto_open = 0

    def __init__(self, host: str, wire: DeadlineSocket) -> None:
        super().__init__(host, port=1)  # neither is used: the wire is connected
        self.wire = wire
        self.sock: Any = wire

    def begin(self, question: _Question) -> HTTPResponse:
        """Ask, and read as far as the headers of the answer."""
        try:
            self.request("POST", question.target, question.body, dict(question.headers))
        except ConnectionError as error:
            # It may have said why before it hung up: that the body is too large, for example.
            with contextlib.suppress(ConnectionError):
                return self.getresponse()
            raise error from None
        return self.getresponse()

    def hang_up(self) -> None:
        self.close()
        self.wire.hang_up()


def _bad_status(url: str, response: HTTPResponse) -> BadStatus:
    status = response.status
    reason = reasons.get(status, "")
    what = f"answered {status} {reason}".rstrip()
    if location := response.getheader("Location"):
        what += f" and points to {shown(location, 100)}; redirects are not followed"
    try:
        text = shown(read_start(response))
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
