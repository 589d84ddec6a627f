"""The mark that an aborted job leaves in its store, for nodes that come later."""

from contextlib import suppress
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode


class JobAborted(DlroverError):
    """The job was aborted by policy before this node joined it."""

    exit_code = ExitCode.ABORTED


def mark_aborted(handler: RendezvousHandler) -> None:
    """Leave the mark, where the handler has a store that outlives the round."""
    store = _lasting_store(handler)
    if store is not None:
        with suppress(RuntimeError, OSError):
            store.set(_key(handler), "1")


def refuse_if_aborted(handler: RendezvousHandler) -> None:
    """Raise JobAborted if the mark is there."""
    store = _lasting_store(handler)
    if store is None:
        return
    try:
        aborted = store.check([_key(handler)])
    except (RuntimeError, OSError):
        return
    if aborted:
        raise JobAborted(
            f"the job {handler.get_run_id()!r} was aborted; nobody may join it any more",
            hint="start a new job with a new --rdzv-id",
        )


def _key(handler: RendezvousHandler) -> str:
    return f"dlrover/aborted/{handler.get_run_id()}"


def _lasting_store(handler: RendezvousHandler) -> Any:
    """torch's handlers keep the store of all rounds in ``_store``; others may have none."""
    return getattr(handler, "_store", None)
