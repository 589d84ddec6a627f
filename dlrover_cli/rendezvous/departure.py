"""Leaving a rendezvous that goes on without us."""

import threading
import time
from contextlib import suppress

from torch.distributed.elastic.rendezvous import RendezvousHandler

_SECONDS = 2.0


def depart(handler: RendezvousHandler) -> None:
    """Take this node out of torch's c10d rendezvous at once.

    torch notices a node that went away only when its keep-alive expires, fifteen seconds later,
    and until then holds the next round open for it. Other handlers have no such state. Gives up
    after two seconds: a store that cannot be reached needs no farewell.
    """
    if not hasattr(handler, "_op_executor"):
        return
    thread = threading.Thread(target=_exit, args=(handler,), name="departure", daemon=True)
    thread.start()
    thread.join(_SECONDS)


def fall_silent(handler: RendezvousHandler) -> None:
    """Stop torch's keep-alive without a word to the store, which may be gone already."""
    if not hasattr(handler, "_stop_heartbeats"):
        return
    thread = threading.Thread(target=_stop, args=(handler,), name="departure", daemon=True)
    thread.start()
    thread.join(_SECONDS)


def _stop(handler: RendezvousHandler) -> None:
    with suppress(Exception):  # nobody is left to care
        handler._stop_heartbeats()  # type: ignore[attr-defined]


def _exit(handler: RendezvousHandler) -> None:
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic

    with suppress(Exception):  # a courtesy to the others; we are going in any case
        handler._stop_heartbeats()  # type: ignore[attr-defined]
        handler._op_executor.run(  # type: ignore[attr-defined]
            dynamic._RendezvousExitOp(), time.monotonic() + _SECONDS
        )
