"""The handlers that ``--metrics_handler`` names: found, constructed with their keys, and started.

A name without dots and colons is an entry point in the group ``dlrover.metrics_handler``, as are
those that come with this package; everything else is ``module::Class``.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_cli.contracts import metrics as contract
from dlrover_cli.contracts.metrics import ENTRY_POINTS, MetricsContext
from dlrover_cli.errors import ConfigError, DlroverError, PluginError
from dlrover_cli.plugins.construct import accepts, construct
from dlrover_cli.plugins.entry_points import entry_point_names, resolve_entry_point
from dlrover_cli.plugins.faults import (
    PluginFault,
    Subject,
    describe,
    must_propagate,
    user_frame,
)
from dlrover_cli.plugins.key_values import TakenKeys
from dlrover_cli.plugins.reference import Found, check_class, resolve

if TYPE_CHECKING:
    from torch.distributed.elastic.metrics.api import MetricHandler

OPTION = "--metrics_handler"
_NAME = re.compile(r"[\w-]+")
_SILENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class NamedHandler:
    """A handler and the reference by which messages speak of it."""

    reference: str
    handler: "MetricHandler"


def load_metrics_handlers(
    references: Sequence[str],
    cfg: Mapping[str, str],
    roots: Sequence[Path],
    *,
    option: str = OPTION,
) -> tuple[NamedHandler, ...]:
    """Load and construct each handler with those keys of `cfg` that its constructor takes.

    All are looked at before the first is constructed, so that a wrong key starts nothing.
    """
    named = [reference.strip() for reference in references]
    found = [_find(reference, roots, option) for reference in named]
    for each in found:
        check_metrics_handler(each)
    _refuse_keys_that_nobody_takes(cfg, dict(zip(named, found, strict=True)))
    return tuple(
        NamedHandler(reference, _construct(each, cfg))
        for reference, each in zip(named, found, strict=True)
    )


def check_metrics_handler(found: Found) -> None:
    """Complain about what is no metrics handler, of torch's kind or of ours. Needs no torch."""
    check_class(found, contract.MetricHandler, also_named={contract.MetricHandler.__name__})


def start_metrics_handlers(handlers: Sequence[NamedHandler], context: MetricsContext) -> None:
    """Start those that can be started; if one cannot, those before it are closed."""
    for number, named in enumerate(handlers):
        start = getattr(named.handler, "start", None)
        if not callable(start) or not accepts(start, context):
            continue
        try:
            with _telling_of_a_wait(named.reference, context):
                start(context)
        except BaseException as error:  # the boundary to the user's handler, whatever it raises
            for other in handlers[:number]:
                _close(other)
            if must_propagate(error) or isinstance(error, DlroverError):
                raise
            raise Subject.of_option(OPTION, named.reference).fault(
                PluginFault.CONSTRUCTOR_RAISED,
                f"its start raised {describe(error)}{user_frame(error)}",
                hint="nothing was started; mend it and run again",
            ) from error


@contextmanager
def _telling_of_a_wait(reference: str, context: MetricsContext) -> Iterator[None]:
    """Nothing else begins before it is done: whoever waits should know for what."""
    line = f"metrics handler {reference} is still starting; the job begins when it is done"
    timer = threading.Timer(_SILENCE_SECONDS, context.say, [line])
    timer.name = "metrics-start"
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _close(named: NamedHandler) -> None:
    close = getattr(named.handler, "close", None)
    with suppress(Exception):  # the error that is on its way says more
        if callable(close) and accepts(close):
            close()


def _find(reference: str, roots: Sequence[Path], option: str) -> Found:
    if _NAME.fullmatch(reference) is None:
        return resolve(reference, option=option, roots=roots)
    if reference in entry_point_names(ENTRY_POINTS):
        return resolve_entry_point(ENTRY_POINTS, reference, option=option)
    raise _unknown_name(reference, option)


def _unknown_name(name: str, option: str) -> PluginError:
    names = entry_point_names(ENTRY_POINTS)
    near = get_close_matches(name, names, n=1)
    suggestion = f"did you mean {near[0]!r}? " if near else ""
    return Subject.of_option(option, name).fault(
        PluginFault.NO_ENTRY_POINT,
        "there is no metrics handler of that name",
        hint=f"{suggestion}Known are {', '.join(names)}; your own is named as module::Class",
    )


def _refuse_keys_that_nobody_takes(cfg: Mapping[str, str], found: Mapping[str, Found]) -> None:
    takers = {reference: TakenKeys(each.value) for reference, each in found.items()}
    for key in cfg:
        if any(taken.takes(key) for taken in takers.values()):
            continue
        known = "; ".join(f"{reference} takes {taken}" for reference, taken in takers.items())
        raise ConfigError(
            f"--metrics_cfg: no metrics handler takes the key {key!r}",
            setting="metrics_cfg",
            hint=known or "name a handler with --metrics_handler",
        )


def _construct(found: Found, cfg: Mapping[str, str]) -> Any:
    taken = TakenKeys(found.value)
    arguments = taken.arguments(cfg)
    lacking = ",".join(f"{name}=…" for name in taken.lacking(arguments))
    try:
        return construct(
            found, kwargs=arguments, hint=f"give --metrics_cfg={lacking}" if lacking else None
        )
    except PluginError as error:
        if isinstance(error.__cause__, ConfigError):  # it says what to do in its own words
            raise error.__cause__ from None
        raise
