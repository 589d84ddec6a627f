"""The process that hosts this node's stores: forked while that is cheap, or started on demand."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.rendezvous.loading import OUR_BACKEND
from dlrover_cli.rendezvous.store_host import StoreHost


@contextmanager
def host_of_stores(config: LaunchConfig) -> Iterator[Callable[[], StoreHost]]:
    """What gives the rendezvous a process for its stores; it ends with the block."""
    needs_one = config.rdzv_backend == OUR_BACKEND and not config.is_local
    if not needs_one or config.rdzv_handler is not None or threading.active_count() > 1:
        yield StoreHost.spawn
        return
    host = StoreHost.fork()
    try:
        yield lambda: host
    finally:
        host.close()
