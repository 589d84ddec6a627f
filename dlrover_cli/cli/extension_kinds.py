"""Every kind of extension that an installed package can announce, loaded and judged alike.

Job plugins have a page of their own, `jobs.plugins`. Those of torchrun are loaded only where some
package brings one: that may load torch. What torch itself announces is taken as it is.
"""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from importlib_metadata import EntryPoint, entry_points

from dlrover_cli.contracts.failover import DynamicFailoverExtension
from dlrover_cli.contracts.job_checks import check_job_plugin
from dlrover_cli.contracts.metrics import ENTRY_POINTS
from dlrover_cli.errors import PluginError
from dlrover_cli.manager.extensions import check_extension, conflicts, in_order
from dlrover_cli.manager.extensions import installed_extensions as unified_extensions
from dlrover_cli.plugins.construct import construct
from dlrover_cli.plugins.entry_points import LOGS_SPECS_GROUP, RENDEZVOUS_GROUP, resolve_entry
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.plugins.reference import Found, check_callable, check_class, resolve
from dlrover_cli.plugins.shims import install_import_shims
from dlrover_cli.telemetry.metrics_loading import check_metrics_handler


class Kind(StrEnum):
    """What an extension is for."""

    JOB_PLUGIN = "job plugin"
    UNIFIED = "unified extension"
    RENDEZVOUS = "rendezvous backend"
    LOGS_SPECS = "logs specs"
    FAILOVER = "failover extension"
    METRICS = "metrics handler"


@dataclass(frozen=True, slots=True)
class Extension:
    """An entry point of an installed package, and what became of loading it."""

    kind: Kind
    name: str
    value: str
    distribution: str
    version: str
    import_seconds: float
    error: PluginError | None


@dataclass(frozen=True, slots=True)
class Extensions:
    """All but job plugins, by kind and name."""

    found: tuple[Extension, ...]
    conflicts: tuple[str, ...]
    """What unified extensions do to each other, in sentences."""


def installed_extensions() -> Extensions:
    """Everything that is announced, loaded. One that cannot be used has an error instead."""
    with redirect_stdout(sys.stderr):
        unified = unified_extensions()
        found = [
            Extension(
                Kind.UNIFIED,
                each.name,
                each.value,
                each.distribution,
                each.version,
                each.import_seconds,
                each.error,
            )
            for each in unified
        ]
        members = in_order([each.cls for each in unified if each.cls is not None])
        found += _announced(Kind.RENDEZVOUS, RENDEZVOUS_GROUP, _check_backend)
        found += _announced(Kind.LOGS_SPECS, LOGS_SPECS_GROUP, _check_logs_specs)
        found += _announced(Kind.METRICS, ENTRY_POINTS, check_metrics_handler)
    return Extensions(tuple(found), tuple(conflicts(members)))


def check_reference(reference: str, folder: Path) -> Extension:
    """A class that is not installed yet, as what it derives from. Raises PluginError if unknown."""
    install_import_shims()
    started = time.perf_counter()
    with redirect_stdout(sys.stderr):
        found = resolve(reference, option="plugin", roots=[folder])
        kind = _kind_of(found)
        error = _error_in(found, _CHECKS[kind])
    return Extension(kind, "", reference, "", "", time.perf_counter() - started, error)


def _announced(kind: Kind, group: str, check: Callable[[Found], object]) -> list[Extension]:
    entries = [entry for entry in entry_points(group=group) if _origin(entry)[0] != "torch"]
    return [_load(kind, entry, check) for entry in sorted(entries, key=lambda entry: entry.name)]


def _load(kind: Kind, entry: EntryPoint, check: Callable[[Found], object]) -> Extension:
    started = time.perf_counter()
    try:
        error = _error_in(resolve_entry(entry, option=kind.value), check)
    except PluginError as fault:
        error = fault
    seconds = time.perf_counter() - started
    return Extension(kind, entry.name, entry.value, *_origin(entry), seconds, error)


def _origin(entry: EntryPoint) -> tuple[str, str]:
    return ("", "") if entry.dist is None else (entry.dist.name, entry.dist.version)


def _error_in(found: Found, check: Callable[[Found], object]) -> PluginError | None:
    try:
        check(found)
    except PluginError as error:
        return error
    return None


def _check_backend(found: Found) -> None:
    """torch calls it without arguments, for a function that makes a handler."""
    check_callable(found)
    if not callable(construct(found)):
        raise found.subject.fault(
            PluginFault.WRONG_RESULT,
            "it returned nothing that could be called",
            hint="return the function that takes RendezvousParameters and makes a handler",
        )


def _check_handler(found: Found) -> None:
    check_class(found, import_module("torch.distributed.elastic.rendezvous").RendezvousHandler)


def _check_logs_specs(found: Found) -> None:
    check_class(found, import_module("torch.distributed.elastic.multiprocessing").LogsSpecs)


def _check_failover(found: Found) -> None:
    check_class(found, DynamicFailoverExtension, also_named={"DynamicFailoverExtension"})


def _kind_of(found: Found) -> Kind:
    cls = found.value if isinstance(found.value, type) else type(found.value)
    names = {base.__name__ for base in cls.__mro__}
    for kind, base in _BASES.items():
        if base in names:
            return kind
    raise found.subject.fault(
        PluginFault.WRONG_BASE,
        f"it derives from none of {', '.join(_BASES.values())}",
        hint="name a class of one of these kinds",
    )


_BASES: Mapping[Kind, str] = {
    Kind.JOB_PLUGIN: "AbstractJobPlugin",
    Kind.UNIFIED: "ManagerExtension",
    Kind.RENDEZVOUS: "RendezvousHandler",
    Kind.LOGS_SPECS: "LogsSpecs",
    Kind.FAILOVER: "DynamicFailoverExtension",
    Kind.METRICS: "MetricHandler",
}
_CHECKS: Mapping[Kind, Callable[[Found], object]] = {
    Kind.JOB_PLUGIN: lambda found: check_job_plugin(found.value, called=found.subject.text),
    Kind.UNIFIED: check_extension,
    Kind.RENDEZVOUS: _check_handler,
    Kind.LOGS_SPECS: _check_logs_specs,
    Kind.FAILOVER: _check_failover,
    Kind.METRICS: check_metrics_handler,
}
