"""The store of the workers of one round, on the node with rank 0."""

import socket
from collections.abc import Callable
from contextlib import suppress

from dlrover_cli.errors import LaunchError
from dlrover_cli.rendezvous.store_host import StoreHost


class WorkersStore:
    """Opens a new store for every round, so that nothing of earlier ones is found in it."""

    def __init__(
        self, host: StoreHost | None, make_host: Callable[[], StoreHost], local_addr: str | None
    ) -> None:
        """Without a ``host``, one is made when it is needed: most nodes never need it."""
        self._host = host
        self._make_host = make_host
        self._local_addr = local_addr
        self._port: int | None = None

    def open(self) -> tuple[str, int] | None:
        """Its address for other nodes; None if there is none, so that somebody else opens one."""
        if self._host is None:
            try:
                self._host = self._make_host()
            except LaunchError:
                return None
        self._port = self._host.replace(self._port)
        if self._port is None:
            return None
        return self._local_addr or socket.getfqdn(), self._port

    def drop(self) -> None:
        """Close the store of the last round."""
        port, self._port = self._port, None
        if port is not None and self._host is not None:
            with suppress(LaunchError):
                self._host.drop(port)

    def close(self) -> None:
        """End the process that hosts it, and whatever else it hosts."""
        if self._host is not None:
            self._host.close()
