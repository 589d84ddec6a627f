"""Helper processes that are forked from the launcher while it has one thread and nothing open.

A fork shares all that torch has loaded; an interpreter of its own would take a second and a hundred
megabytes.
"""

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from dlrover_cli.errors import LaunchError
from dlrover_cli.launch.worker_start import WorkerStart
from dlrover_cli.rendezvous.no_lookups import spare_torch_its_lookups
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.workers.as_new import flush_streams
from dlrover_cli.workers.commands import ForkedProcess, NurseryClient
from dlrover_cli.workers.zygote import Upbringing, become_zygote, is_single_threaded


@dataclass(frozen=True, slots=True)
class Helpers:
    """What was forked; None where it could not be, and is done without or started anew."""

    zygote: NurseryClient | None = None
    store_host: StoreHost | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what nobody else ends; the zygote is its starter's. A second call does nothing."""
        if self.store_host is not None:
            self.store_host.close()


def fork_helpers(worker_start: WorkerStart) -> Helpers | socket.socket:
    """Fork all that this run can use. Returns a socket in the zygote, which has to serve it."""
    if not is_single_threaded():
        return Helpers()
    flush_streams()
    store_host = None
    with suppress(LaunchError):  # the agent hosts the stores then
        store_host = StoreHost.fork()
        _spare_lookups(store_host)
    if not worker_start.warm:
        return Helpers(None, store_host)
    try:
        ours, theirs = socket.socketpair()
        pid = os.fork()
    except OSError:
        return Helpers(None, store_host)
    if pid == 0:
        ours.close()
        if store_host is not None:
            store_host.forget()
        return theirs
    theirs.close()
    return Helpers(NurseryClient(ours, ForkedProcess(pid)), store_host)


def _spare_lookups(store_host: StoreHost) -> None:
    """Neither this process nor what is forked from it shall wait for a name server to connect."""
    from torch.distributed import TCPStore

    port = store_host.open()
    spare_torch_its_lookups(lambda: TCPStore("127.0.0.1", port, is_master=False))
    store_host.drop(port)


def serve_as_zygote(sock: socket.socket, worker_start: WorkerStart) -> None:
    """Never returns in the zygote. Returns in a worker, when its script has ended."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if not sys.flags.safe_path:
        sys.path.pop(0)  # a worker has its script's directory there instead of ours
    become_zygote(sock, Upbringing(worker_start.preloads, worker_start.beside, worker_start.learns))
