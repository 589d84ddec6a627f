"""The process that hosts stores: opens and drops them on request, and ends with its agent.

A store must answer whatever else goes on, so nothing else goes on here: no lookup can freeze it,
no signal that a terminal or a supervisor sends to everybody reaches it. It ends when its channel
closes or when the agent is gone, whoever else may have inherited the agent's end of the channel.

Requests, one JSON object per line    {"op": "open", "host": str | null, "port": int}
                                      {"op": "drop", "port": int}
Replies, one per request              {"port": int}
                                      {"errno": int, "error": str}
The first line, before any request    {"pid": int, "lookups": "forbidden" | "bounded"}
"""

import ctypes
import errno
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any, NoReturn

from dlrover_cli.errors import LaunchError
from dlrover_cli.rendezvous.no_lookups import forbid_lookups, hidden_stderr

_NAME = b"dlrover-store"
_BACKLOG = 4096  # as many may connect at the same moment without being sent back
_CONNECT_TIMEOUT = timedelta(seconds=30)
_PR_SET_NAME = 15
# A terminal or a supervisor may send these to every process it can see; the agent decides.
_SHIELDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class StoreServers:
    """TCPStore servers of this process, by port."""

    def __init__(self) -> None:
        self._servers: dict[int, Any] = {}

    def open(self, host: str | None = None, port: int = 0) -> int:
        """Listen on a port, or on a free one, of one address or of all. Raises OSError."""
        from torch.distributed import TCPStore

        listener = _listen(host, port)
        number = int(listener.getsockname()[1])
        try:
            self._servers[number] = TCPStore(
                host or "127.0.0.1",
                number,
                is_master=True,
                wait_for_workers=False,
                timeout=_CONNECT_TIMEOUT,
                master_listen_fd=listener.detach(),
            )
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error).partition("\n")[0]) from error
        return number

    def drop(self, port: int) -> None:
        """Close a store and all connections to it."""
        self._servers.pop(port, None)


def serve_forked(channel: socket.socket, agent: int) -> NoReturn:
    """The life of a forked child. Nothing of what it inherited runs again, nor at its end."""
    status = 1
    try:
        gc.disable()  # whatever its parent left to be collected is not this process's to finalise
        signal.set_wakeup_fd(-1)
        _keep_only(channel.fileno())
        _serve(channel, agent)
        status = 0
    finally:
        os._exit(status)


def serve_spawned() -> NoReturn:
    """The life of a new interpreter; its arguments are the channel's number and the agent's pid."""
    channel, agent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    _serve(channel, agent)
    os._exit(0)  # there is nothing to tidy up, and torch would take its time


def serve_in_foreground(
    host: str | None,
    port: int,
    ready: Callable[[int], None],
    wait: Callable[[], object],
) -> None:
    """Host one store in this very process until ``wait`` returns. Raises LaunchError."""
    address = _address_of(host)  # while names can still be looked up
    prepare_process()
    servers = StoreServers()
    with hidden_stderr():
        try:
            number = servers.open(address, port)
        except (OSError, OverflowError) as error:
            at = f"{host}:{port}" if host else f"port {port}"
            raise LaunchError(
                f"cannot listen on {at}: {getattr(error, 'strerror', None) or error}",
                hint="choose another with --port, or another address of this machine with --host",
            ) from error
        ready(number)
        wait()
        servers.drop(number)


def prepare_process() -> bool:
    """Make this process fit to host a store; whether lookups are forbidden rather than bounded."""
    with suppress(AttributeError):  # of Linux
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME, 0, 0, 0)
    _allow_many_connections()
    return forbid_lookups()


def _serve(channel: socket.socket, agent: int) -> None:
    with suppress(PermissionError):  # a new interpreter leads a session already
        os.setsid()
    _reset_signals()
    _silence()
    forbidden = prepare_process()
    servers = StoreServers()
    with suppress(ConnectionError):
        _reply(channel, {"pid": os.getpid(), "lookups": "forbidden" if forbidden else "bounded"})
        for request in _requests(channel, agent):
            _reply(channel, _perform(servers, request))


def _perform(servers: StoreServers, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["op"] == "open":
            return {"port": servers.open(request["host"], request["port"])}
        servers.drop(request["port"])
        return {"port": request["port"]}
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        return {"errno": number, "error": getattr(error, "strerror", None) or str(error)}


def _requests(channel: socket.socket, agent: int) -> Iterator[dict[str, Any]]:
    """What the agent asks for, until one of the two ends of its channel or the agent is gone."""
    buffer = b""
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        selector.register(channel, selectors.EVENT_READ)
        with suppress(OSError, AttributeError):  # a kernel or a system without
            gone = os.pidfd_open(agent)
            stack.callback(os.close, gone)
            selector.register(gone, selectors.EVENT_READ)
        while os.getppid() == agent:
            if not any(key.fileobj is channel for key, _ in selector.select()):
                return
            data = channel.recv(1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)


def _reply(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _address_of(host: str | None) -> str | None:
    if host is None:
        return None
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (socket.gaierror, UnicodeError) as error:
        raise LaunchError(
            f"{host!r} is no address of this machine: {error}",
            hint="leave --host out to listen on all of them",
        ) from error


def _listen(host: str | None, port: int) -> socket.socket:
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", port), backlog=_BACKLOG)


def _reset_signals() -> None:
    for signum in signal.valid_signals():
        with suppress(OSError, ValueError):  # some cannot be handled
            signal.signal(signum, signal.SIG_IGN if signum in _SHIELDED else signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _silence() -> None:
    """torch tells stderr about every connection that breaks; the agent says what matters."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if null > 2:
        os.close(null)


def _keep_only(kept: int) -> None:
    """Close what was inherited: a connection or a pipe held open here would outlive its owner."""
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        if fd > 2 and fd != kept:
            with suppress(OSError):
                os.close(fd)


def _allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
