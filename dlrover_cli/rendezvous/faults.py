"""What went wrong in a rendezvous, as one sentence and one hint."""

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousTimeoutError,
)

from dlrover_cli.errors import RendezvousFailed

_RETRY_SECONDS = 0.5
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_NO_ANSWER = re.compile(r"timed out .*trying to connect", re.IGNORECASE)
_PORT = re.compile(r"\bport: ?(\d+)")
_UNREACHABLE_HINT = "check that the node that hosts it is up, and that nothing blocks the port"
_MORE_TIME = {
    "c10d": "; --rdzv-conf join_timeout=SECONDS allows more time",
    "static": "; --rdzv-conf timeout=SECONDS allows more time",
}


def wait_until_resolvable(host: str, timeout: float, say: Callable[[str], None]) -> None:
    """Return once ``host`` has an address. A name may appear late, as a service's does."""
    deadline = time.monotonic() + timeout
    told = False
    while True:
        try:
            socket.getaddrinfo(host, None)
        except UnicodeError:
            reason = "it is not a valid host name"
            deadline = 0.0
        except socket.gaierror as error:
            reason = str(error.strerror)
        else:
            return
        if time.monotonic() >= deadline:
            raise RendezvousFailed(
                f"the host {host!r} of the rendezvous endpoint does not resolve: {reason}",
                hint="check the spelling of --rdzv-endpoint or --master-addr, or use an IP address",
            )
        if not told:
            told = True
            say(f"the host {host!r} does not resolve yet ({reason}); trying for {timeout:g} s")
        time.sleep(_RETRY_SECONDS)


def explain(error: BaseException, backend: str, endpoint: str) -> RendezvousFailed:
    """The sentence for whatever a rendezvous handler raised."""
    if isinstance(error, RendezvousFailed):
        return error
    causes = list(_chain(error))
    text = "\n".join(str(cause) for cause in causes)
    if _IN_USE.search(text):
        return _port_in_use(text, endpoint)
    if _NO_ANSWER.search(text):
        return RendezvousFailed(
            f"nobody answers at the rendezvous endpoint {endpoint}", hint=_UNREACHABLE_HINT
        )
    if isinstance(error, RendezvousTimeoutError) or any(
        isinstance(cause, TimeoutError) or "timed out" in str(cause).lower() for cause in causes
    ):
        return RendezvousFailed(
            f"the nodes did not come together in time ({_where(backend, endpoint)})",
            hint="check that every node was started with the same --nnodes, --rdzv-id and "
            f"--rdzv-endpoint, and that the endpoint can be reached{_MORE_TIME.get(backend, '')}",
        )
    if isinstance(error, RendezvousClosedError):
        return RendezvousFailed(
            "the job with this --rdzv-id has ended; its rendezvous is closed",
            hint="start a new job with a new --rdzv-id",
        )
    if re.search(r"failed to connect|connection refused|has failed", text, re.IGNORECASE):
        return RendezvousFailed(
            f"the store of the rendezvous cannot be reached ({_where(backend, endpoint)}): "
            f"{_first_line(causes[-1])}",
            hint=_UNREACHABLE_HINT,
        )
    return RendezvousFailed(
        f"the rendezvous ({backend}) raised {type(error).__name__}: {_first_line(error)}",
        hint="see the documentation of the rendezvous handler",
    )


def accepts_connections(host: str, port: int, timeout: float = 1.0) -> bool:
    """Whether anything at all listens there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True


def no_store(host: str, port: int) -> RendezvousFailed:
    """For an endpoint that takes connections and then says nothing that a store would say."""
    holder = holder_of_port(port)
    what = (
        f"port {port} is in use by {holder}, which" if holder else f"what listens at {host}:{port}"
    )
    return RendezvousFailed(
        f"{what} does not answer as a rendezvous store",
        hint="end that process, or choose another port with --rdzv-endpoint on every node",
    )


def _where(backend: str, endpoint: str) -> str:
    # A handler of the user's own has no endpoint that we know of.
    return f"backend {backend}" + (f", endpoint {endpoint}" if endpoint != backend else "")


def _port_in_use(text: str, endpoint: str) -> RendezvousFailed:
    named = _PORT.search(text)
    port = int(named.group(1)) if named else int(endpoint.rpartition(":")[2] or 0)
    holder = holder_of_port(port)
    by = f" by {holder}" if holder else ""
    return RendezvousFailed(
        f"port {port} is in use{by}",
        hint="end that process, choose another port with --rdzv-endpoint or --master-port, or use "
        "--standalone for a free one",
    )


def holder_of_port(port: int) -> str | None:
    """``name (pid N)`` of the process that listens on a local TCP port, where it can be seen."""
    inodes = set(_listening_inodes(port))
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for fd in (process / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(fd) in inodes:
                        name = (process / "comm").read_text().strip()
                        return f"{name} (pid {process.name})"
    return None


def hosts_port(port: int) -> bool:
    """Whether this process itself listens on a local TCP port."""
    inodes = set(_listening_inodes(port))
    with suppress(OSError):
        for fd in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if os.readlink(fd) in inodes:
                    return True
    return False


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in Path(table).read_text().splitlines()[1:]:
                fields = row.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, "") + " " + (error.strerror or "")
    return str(error).strip().partition("\n")[0]
