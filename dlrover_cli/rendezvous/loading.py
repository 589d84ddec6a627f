"""A user's rendezvous handler: loaded from `module::Class`, and its answers taken or refused."""

import operator
from collections.abc import Sequence
from difflib import get_close_matches
from inspect import isawaitable, iscoroutine
from pathlib import Path
from typing import Any

from torch.distributed import Store
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from dlrover_cli.errors import ConfigError
from dlrover_cli.plugins.construct import accepts, construct
from dlrover_cli.plugins.entry_points import (
    RENDEZVOUS_GROUP,
    entry_point_names,
    resolve_entry_point,
)
from dlrover_cli.plugins.faults import PluginFault, Subject
from dlrover_cli.plugins.reference import Found, check_callable, check_class, resolve

OPTION = "--rdzv_handler"
OUR_BACKEND = "dlrover"


def create_rendezvous_handler(
    reference: str, params: RendezvousParameters, roots: Sequence[Path], *, option: str = OPTION
) -> RendezvousHandler:
    """Call the class or creator function with `params`, or without where it takes nothing."""
    found = resolve(reference, option=option, roots=roots)
    if isinstance(found.value, type):
        check_class(found, RendezvousHandler)
    else:
        check_callable(found)
    handler = _call_with(found, params)
    if not isinstance(handler, RendezvousHandler):
        raise found.subject.fault(
            PluginFault.WRONG_RESULT,
            f"it returned {_what_it_is(handler)} and not a RendezvousHandler",
            hint="return an object of a class that derives from RendezvousHandler",
        )
    return handler


def as_rendezvous_info(result: object, handler: RendezvousHandler) -> RendezvousInfo:
    """What `next_rendezvous` returned, as RendezvousInfo; an old 3-tuple is as good as one.

    Raises a PluginError for anything that workers could not be started with.
    """
    name = f"{type(handler).__module__}::{type(handler).__qualname__}"
    subject = Subject(f"next_rendezvous of {name}", name)
    match result:
        case RendezvousInfo(store=store, rank=rank, world_size=world_size):
            pass
        case (store, rank, world_size):
            pass
        case _:
            raise subject.fault(
                PluginFault.WRONG_RESULT,
                f"it returned {_what_it_is(result)}",
                hint="return RendezvousInfo, or the tuple (store, rank, world_size)",
            )
    if not isinstance(store, Store):
        raise subject.fault(
            PluginFault.WRONG_RESULT,
            f"the store that it returned is {_what_it_is(store)}",
            hint="return a torch.distributed.Store: TCPStore, FileStore, PrefixStore or your own "
            "subclass",
        )
    rank, world_size = _integer(subject, "rank", rank), _integer(subject, "world size", world_size)
    if not 0 <= rank < world_size:
        raise subject.fault(
            PluginFault.WRONG_RESULT,
            f"it returned rank {rank} of world size {world_size}",
            hint="ranks go from 0 to the world size less one, and count agents, not workers",
        )
    if isinstance(result, RendezvousInfo):
        return result
    # torch's annotation does not allow None, its property and its agent do.
    return RendezvousInfo(store, rank, world_size, None)  # type: ignore[arg-type]


def check_rendezvous_backend(name: str) -> None:
    """Refuse a `--rdzv-backend` that neither we nor torch have, naming those that there are."""
    if name in _registered_backends():
        return
    if name in entry_point_names(RENDEZVOUS_GROUP):
        _explain_broken_entry_point(name)
    known = known_rendezvous_backends()
    near = get_close_matches(name, known, n=1)
    raise ConfigError(
        f"--rdzv-backend={name}: there is no rendezvous backend of that name",
        setting="rdzv_backend",
        hint=f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}",
    )


def known_rendezvous_backends() -> tuple[str, ...]:
    """Every name that `--rdzv-backend` takes here: ours, torch's, installed and registered ones."""
    return tuple(sorted({*_registered_backends(), *entry_point_names(RENDEZVOUS_GROUP)}))


def _registered_backends() -> frozenset[str]:
    # There is no public way to list them; without the attribute torch's own names remain.
    registry = getattr(rendezvous_handler_registry, "_registry", None)
    return frozenset({*(registry or ("c10d", "etcd", "etcd-v2", "static")), OUR_BACKEND})


def _explain_broken_entry_point(name: str) -> None:
    """torch logged a traceback and went on without it; say in a sentence what it was."""
    found = resolve_entry_point(RENDEZVOUS_GROUP, name, option="--rdzv-backend")
    check_callable(found)
    construct(found)
    raise found.subject.fault(
        PluginFault.WRONG_RESULT,
        "torch could not register it when it was first imported",
        hint="torch logged the reason as a warning above",
    )


def _call_with(found: Found, params: RendezvousParameters) -> Any:
    if not accepts(found.value, params):
        if accepts(found.value):
            return construct(found)
        if accepts(found.value, params=params):
            return construct(found, kwargs={"params": params})
    return construct(found, [params])


def _integer(subject: Subject, what: str, value: object) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise subject.fault(
        PluginFault.WRONG_RESULT,
        f"the {what} that it returned is {_what_it_is(value)} and not an integer",
        hint="return RendezvousInfo, or the tuple (store, rank, world_size)",
    )


def _what_it_is(value: object) -> str:
    if value is None:
        return "None"
    if isawaitable(value):
        if iscoroutine(value):
            value.close()  # nobody will await it, and Python would warn about that
        return "a coroutine, which nobody awaits"
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, bool | str | float):
        return repr(value)[:80]
    return f"an object of type {type(value).__name__}"
