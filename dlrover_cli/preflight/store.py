"""The store where the probes of a check find each other, on node rank 0."""

from contextlib import suppress
from types import TracebackType
from typing import Self

from torch.distributed import TCPStore

from dlrover_cli.errors import LaunchError
from dlrover_cli.rendezvous.store_host import StoreHost


class ProbeStore:
    """Open while a check runs; in the process that is there for stores, or else in this one."""

    def __init__(self, host: StoreHost | None) -> None:
        self._host = host
        self._server: TCPStore | None = None
        self._hosted: int | None = None
        self.port = 0

    def __enter__(self) -> Self:
        if self._host is not None:
            self._hosted = self._host.replace(None)
        if self._hosted is not None:
            self.port = self._hosted
            return self
        self._server = TCPStore("localhost", 0, is_master=True, multi_tenant=True)
        self.port = self._server.port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server = None
        if self._host is not None and self._hosted is not None:
            with suppress(LaunchError):  # its process is gone, and the store with it
                self._host.drop(self._hosted)
