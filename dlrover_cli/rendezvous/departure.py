"""Leaving a rendezvous that goes on without us."""

import threading
import time
from contextlib import suppress

from torch.distributed.elastic.rendezvous import RendezvousHandler

_SECONDS = 2.0


def depart(handler: RendezvousHandler) -> None:
    """Take this node out of our rendezvous, or of torch's c10d, at once.

    torch notices a node that went away only when its keep-alive expires, fifteen seconds later,
    and until then holds the next round open for it. Other handlers have no such state. Gives up
    after two seconds: a store that cannot be reached needs no farewell.
    """
    if not can_depart(handler):
        return
    thread = threading.Thread(target=_exit, args=(handler,), name="departure", daemon=True)
    thread.start()
    thread.join(_SECONDS)


def can_depart(handler: RendezvousHandler) -> bool:
    """Whether a node can leave while the rendezvous goes on without it."""
    return hasattr(handler, "leave") or hasattr(handler, "_op_executor")


def member_of(handler: RendezvousHandler) -> str:
    """What the other nodes know this one by; empty where the rendezvous has no such names."""
    return str(getattr(handler, "member", ""))


def bury(handler: RendezvousHandler, member: str) -> None:
    """Let the next round go on without a node that is known to be gone, if the handler can."""
    if hasattr(handler, "bury"):
        with suppress(Exception):  # it is missed all the same, after a lease
            handler.bury(member)


def fall_silent(handler: RendezvousHandler) -> None:
    """Stop what goes on behind a handler; ours lets go of the store, torch's stops its keep-alive.

    Without a word to torch's store, which may be gone already.
    """
    if not hasattr(handler, "_stop_heartbeats") and not hasattr(handler, "release"):
        return
    thread = threading.Thread(target=_stop, args=(handler,), name="departure", daemon=True)
    thread.start()
    thread.join(_SECONDS)


def _stop(handler: RendezvousHandler) -> None:
    with suppress(Exception):  # nobody is left to care
        if hasattr(handler, "release"):
            handler.release()
            return
        handler._stop_heartbeats()  # type: ignore[attr-defined]


def _exit(handler: RendezvousHandler) -> None:
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic

    with suppress(Exception):  # a courtesy to the others; we are going in any case
        if hasattr(handler, "leave"):
            handler.leave()
            return
        handler._stop_heartbeats()  # type: ignore[attr-defined]
        handler._op_executor.run(  # type: ignore[attr-defined]
            dynamic._RendezvousExitOp(), time.monotonic() + _SECONDS
        )
