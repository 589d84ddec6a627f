"""The job plugins that can be used here, and how another process finds the same one again.

A job's plugin is, in this order: the one that the job file names as `module::Class`; one that this
program has registered; one that an installed package announces in `dlrover.job_plugin`, as a class
or an object. An entry point with the name `<platform>-<engine>` is found without importing others.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from importlib_metadata import EntryPoint, entry_points

from dlrover_cli.contracts.job_checks import CheckedPlugin, check_job_plugin, reference_of
from dlrover_cli.contracts.job_registry import (
    Pair,
    current_registry,
    pair_text,
    registered_plugins,
    registering_aside,
)
from dlrover_cli.contracts.jobs import AbstractJobPlugin
from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.entry_points import resolve_entry, resolve_entry_point
from dlrover_cli.plugins.faults import PluginFault, Subject
from dlrover_cli.plugins.importing import root_of
from dlrover_cli.plugins.reference import Found, resolve

GROUP = "dlrover.job_plugin"
OPTION = "job plugin"


@dataclass(frozen=True, slots=True)
class PluginSource:
    """An entry point's name; or a reference, and the folders in which its module may be."""

    entry_point: str | None
    reference: str | None
    roots: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["entry_point"], data["reference"], tuple(data["roots"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"roots": list(self.roots)}


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """An entry point of an installed package, and what became of loading it."""

    name: str
    value: str
    distribution: str
    version: str
    import_seconds: float
    pair: Pair | None
    error: PluginError | None
    checked: CheckedPlugin | None = None


def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """Everything that is announced, loaded. One that cannot be used has an error instead."""
    return tuple(_load_entry(entry) for entry in _entries())


def find_plugin(
    platform: str, engine: str, *, reference: str | None, roots: Sequence[Path]
) -> tuple[AbstractJobPlugin, PluginSource]:
    """The plugin of a job, and its source for another process. Raises PluginError."""
    pair = (platform, engine)
    folders = tuple(str(root.absolute()) for root in roots)
    if reference is not None:
        return _find_named(reference, roots, pair), PluginSource(None, reference, folders)
    registered = registered_plugins().get(pair)
    if registered is not None:
        return registered, _source_of(registered, folders)
    entry, checked = _find_announced(pair)
    return checked.plugin, PluginSource(entry, None)


def load_plugin(source: PluginSource) -> AbstractJobPlugin:
    """The plugin that `find_plugin` has found, perhaps in another process. Raises PluginError."""
    if source.reference is not None:
        return _load_reference(source.reference, [Path(root) for root in source.roots]).plugin
    with registering_aside(), redirect_stdout(sys.stderr):
        return _checked(resolve_entry_point(GROUP, source.entry_point or "", option=OPTION)).plugin


def _find_named(reference: str, roots: Sequence[Path], pair: Pair) -> AbstractJobPlugin:
    checked = _load_reference(reference, roots)
    if checked.pair == pair:
        return checked.plugin
    platform, engine = checked.pair
    raise Subject.of_option(OPTION, reference).fault(
        PluginFault.WRONG_RESULT,
        f"it runs {pair_text(checked.pair)}, and the job says {pair_text(pair)}",
        hint=f"write platform: {platform} and engine: {engine}, or name another plugin",
    )


def _load_reference(reference: str, roots: Sequence[Path]) -> CheckedPlugin:
    # A module may register its plugin when it is imported; here it is for those who name it.
    with registering_aside(), redirect_stdout(sys.stderr):
        return _checked(resolve(reference, option=OPTION, roots=roots))


def _checked(found: Found) -> CheckedPlugin:
    return check_job_plugin(found.value, called=found.subject.text)


def _source_of(plugin: AbstractJobPlugin, folders: Sequence[str]) -> PluginSource:
    cls = type(plugin)
    reference = reference_of(plugin)
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise Subject.of_option(OPTION, reference).fault(
            PluginFault.NO_MODULE,
            "another process cannot import it, and jobs have processes of their own",
            hint="define the class at the top of a module that can be imported",
        )
    root = root_of(sys.modules[cls.__module__])
    return PluginSource(None, reference, (*folders, *([str(root)] if root else [])))


def _find_announced(pair: Pair) -> tuple[str, CheckedPlugin]:
    """The name of an entry point, and its plugin."""
    entries = _entries()
    named = [entry for entry in entries if entry.name == "-".join(pair)]
    if len(named) == 1:
        loaded = _load_entry(named[0])
        if loaded.error is not None:
            raise loaded.error
        if loaded.checked is not None and loaded.pair == pair:
            return loaded.name, loaded.checked
    everything = [_load_entry(entry) for entry in entries]
    matching = [each for each in everything if each.pair == pair]
    if len(matching) > 1:
        raise _ambiguous(pair, matching)
    for each in matching:
        if each.checked is not None:
            return each.name, each.checked
    raise _unknown(pair, everything)


def _ambiguous(pair: Pair, matching: Sequence[InstalledPlugin]) -> PluginError:
    origins = " and ".join(f"{each.value} of {each.distribution}" for each in matching)
    module, _, name = matching[0].value.partition(":")
    return PluginError(
        f"several installed packages bring a job plugin for {pair_text(pair)}: {origins}",
        reference=pair_text(pair),
        reason="ambiguous",
        hint=f"name the one you mean in the job: plugin: {module}::{name}",
    )


def _unknown(pair: Pair, everything: Sequence[InstalledPlugin]) -> PluginError:
    known = current_registry().copy()
    for each in everything:
        if each.checked is not None and each.pair not in known.plugins:
            known.add_plugin(each.checked, replace=False)
    error = known.not_found(*pair)
    broken = ", ".join(each.name for each in everything if each.error is not None)
    if broken:
        error.message += f"; not loaded, as `dlrover-job plugins list` explains: {broken}"
    return error


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, _origin(entry)))


def _origin(entry: EntryPoint) -> tuple[str, str]:
    """The name and version of the package that announces it."""
    return (entry.dist.name, entry.dist.version) if entry.dist is not None else ("", "")


def _load_entry(entry: EntryPoint) -> InstalledPlugin:
    begin = time.perf_counter()
    checked, error = None, None
    try:
        with registering_aside(), redirect_stdout(sys.stderr):
            checked = _checked(resolve_entry(entry, option=OPTION))
    except PluginError as raised:
        error = raised
    return InstalledPlugin(
        entry.name,
        entry.value,
        *_origin(entry),
        import_seconds=time.perf_counter() - begin,
        pair=checked.pair if checked is not None else None,
        error=error,
        checked=checked,
    )
