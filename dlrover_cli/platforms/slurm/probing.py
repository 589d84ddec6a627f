"""Which nodes have a slurmd that answers: what srun needs of them, seen without Slurm's help."""

import errno
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_SECONDS = 2.0


def answering(addresses: Mapping[str, tuple[str, int]], seconds: float = _SECONDS) -> set[str]:
    """The names whose address takes a connection; all are tried at once."""
    found: set[str] = set()
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for name, address in addresses.items():
            _begin(selector, name, address)
        try:
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        found.add(key.data)
                    selector.unregister(connection)
                    connection.close()
        finally:
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
    return found


def _begin(selector: selectors.BaseSelector, name: str, address: tuple[str, int]) -> None:
    with suppress(OSError):  # a name that cannot be looked up has no slurmd either
        family, kind, proto, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, proto)
        connection.setblocking(False)
        if connection.connect_ex(where) in (0, errno.EINPROGRESS):
            selector.register(connection, selectors.EVENT_WRITE, name)
        else:
            connection.close()
