"""The installed manager extensions as one object, in a defined order, with conflicts explained.

By the names of their entry points, then those that were registered in this process; a class goes
before its own bases. Where several define the same method, the first one is asked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from importlib_metadata import EntryPoint, entry_points

from dlrover_cli.contracts.manager import ManagerExtension, ManagerView
from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.construct import accepts
from dlrover_cli.plugins.entry_points import resolve_entry
from dlrover_cli.plugins.faults import PluginFault, describe
from dlrover_cli.plugins.reference import Found, check_class
from dlrover_cli.plugins.shims import install_import_shims

GROUP = "dlrover.unified.extension"
_BASE = "ManagerExtension"


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """An entry point, and what became of loading it."""

    name: str
    value: str
    distribution: str
    version: str
    import_seconds: float
    cls: type | None
    error: PluginError | None


@dataclass(frozen=True, slots=True)
class Composition:
    """All that can be used, as one object; None where there is nothing to use."""

    extension: ManagerExtension | None
    members: tuple[type, ...]
    problems: tuple[str, ...]

    @property
    def replaces_nodes(self) -> bool:
        """Whether somebody has something to say about `relaunch_nodes_impl`."""
        return bool(_defining("relaunch_nodes_impl", self.members))


def installed_extensions() -> tuple[InstalledExtension, ...]:
    """Everything that is announced, by name. One that cannot be used has an error instead."""
    install_import_shims()
    entries = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    return tuple(_load(entry) for entry in entries)


def compose(installed: Sequence[InstalledExtension], manager: ManagerView) -> Composition:
    """One object of all extensions that can be used, and what is wrong with the others."""
    problems = [each.error.message for each in installed if each.error is not None]
    loaded = [each.cls for each in installed if each.cls is not None]
    members = in_order([*loaded, *registered(loaded)])
    problems += conflicts(members)
    if not members:
        return Composition(None, (), tuple(problems))
    try:
        # In the class: DLRover's own ManagerExtension has a property there that cannot be set.
        extension = type("ComposedExtension", members, {"manager": manager})()
    except Exception as error:  # noqa: BLE001 - the boundary to the extensions' constructors
        names = ", ".join(map(_name, members))
        problems.append(f"the extensions {names} cannot be made one object: {describe(error)}")
        return Composition(None, (), tuple(problems))
    return Composition(extension, members, tuple(problems))


def registered(loaded: Sequence[type]) -> list[type]:
    """What was registered in this process, with our ManagerExtension or with DLRover's own."""
    bases = [_base_of(cls) for cls in loaded]
    return [
        extension
        for base in dict.fromkeys([ManagerExtension, *bases])
        if base is not None and hasattr(base, "extensions")
        for extension in base.extensions()
    ]


def in_order(classes: Sequence[type]) -> tuple[type, ...]:
    """Each once, and none that another one derives from: that one stands for it."""
    once = list(dict.fromkeys(classes))
    return tuple(
        cls for cls in once if not any(cls is not each and issubclass(each, cls) for each in once)
    )


def conflicts(members: Sequence[type]) -> list[str]:
    """A sentence for each method that several extensions define."""
    names = sorted({name for cls in members for name in _defined_by(cls)})
    sentences = []
    for name in names:
        first, *others = _defining(name, members)
        if others:
            unheard = ", ".join(map(_name, others))
            sentences.append(
                f"{name} is defined by several extensions: {_name(first)} is asked, and not "
                f"{unheard}, unless it calls super()"
            )
    return sentences


def check_extension(found: Found) -> type:
    """A class that the manager can make an object of and ask. Raises PluginError."""
    cls = check_class(found, ManagerExtension, also_named={_BASE})
    if not accepts(cls):
        raise found.subject.fault(
            PluginFault.WRONG_SIGNATURE,
            "its constructor needs arguments, and gets none",
            hint="read what it needs from the environment; the job is in self.manager",
        )
    method = getattr(cls, "relaunch_nodes_impl", None)
    if not callable(method) or not accepts(method, "self", "nodes"):
        raise found.subject.fault(
            PluginFault.WRONG_SIGNATURE,
            "relaunch_nodes_impl is called with the list of nodes, and does not take it",
            hint="async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]",
        )
    return cls


def _defining(name: str, members: Sequence[type]) -> list[type]:
    return [cls for cls in members if name in _defined_by(cls)]


def _defined_by(cls: type) -> set[str]:
    """The public names that a class and its bases below ManagerExtension define."""
    base = _base_of(cls)
    not_its_own = {object} if base is None else set(base.__mro__)
    own = [each for each in cls.__mro__ if each not in not_its_own]
    return {name for each in own for name in vars(each) if not name.startswith("_")}


def _base_of(cls: type) -> Any:
    """The ManagerExtension that a class derives from: ours, or that of a DLRover that is there."""
    return next((each for each in cls.__mro__ if each.__name__ == _BASE), None)


def _load(entry: EntryPoint) -> InstalledExtension:
    started = time.perf_counter()
    cls, error = None, None
    try:
        cls = check_extension(resolve_entry(entry, option="unified extension"))
    except PluginError as fault:
        error = fault
    dist = entry.dist
    return InstalledExtension(
        entry.name,
        entry.value,
        "" if dist is None else dist.name,
        "" if dist is None else dist.version,
        time.perf_counter() - started,
        cls,
        error,
    )


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
