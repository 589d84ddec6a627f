"""The import paths of DLRover and torchelastic, for machines where those are not installed.

One finder at the end of `sys.meta_path`: it is asked only for what nobody else has, so an
installed package is never hidden, and a folder that merely bears the name `dlrover` does no harm.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from dlrover_cli.contracts import failover, manager


def install_import_shims() -> None:
    """Make the import paths work; calling it again moves the finder back to the end."""
    for finder in [found for found in sys.meta_path if isinstance(found, ShimFinder)]:
        sys.meta_path.remove(finder)
    sys.meta_path.append(ShimFinder(_MODULES))


def provided_modules(package: str) -> list[str]:
    """The import paths that stand in for those of `package`, sorted."""
    return sorted(name for name in _MODULES if name.split(".")[0] == package)


@dataclass(frozen=True, slots=True)
class Exports:
    """What a stand-in module holds: some names of a module, or all of its public ones.

    The module is named rather than imported, since torch is loaded only when it is asked for.
    """

    source: str
    names: tuple[str, ...] = ()

    def values(self) -> Mapping[str, object]:
        module = import_module(self.source)
        names = self.names or [name for name in vars(module) if not name.startswith("_")]
        return {name: getattr(module, name) for name in names}


_FAILOVER = failover.__name__
_MANAGER = manager.__name__
_MODULES: Mapping[str, Exports] = {
    "dlrover.python.common.enums": Exports(_FAILOVER, ("FailoverStrategy",)),
    "dlrover.python.common.failover": Exports(
        _FAILOVER, ("DynamicFailoverExtension", "FailoverStrategy", "FailureInfo")
    ),
    "dlrover.python.elastic_agent.torch.dynamic_failover": Exports(
        _FAILOVER,
        (
            "AgentFailureInfo",
            "DynamicAgentFailoverExtension",
            "DynamicFailoverExtension",
            "FailoverStrategy",
            "FailureInfo",
        ),
    ),
    "dlrover.python.unified.common.actor_base": Exports(_MANAGER, ("NodeInfo",)),
    "dlrover.python.unified.controller.extension": Exports(
        _MANAGER, ("ManagerExtension", "NodeInfo")
    ),
    "torchelastic.metrics": Exports("torch.distributed.elastic.metrics"),
}


class ShimFinder(MetaPathFinder):
    """Finds the stand-in modules and the packages above them."""

    def __init__(self, modules: Mapping[str, Exports]) -> None:
        self._modules = modules
        self._packages = frozenset(_parents(modules))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname in self._modules:
            return ModuleSpec(fullname, _ShimLoader(self._modules[fullname]), origin=__name__)
        if fullname in self._packages:
            return ModuleSpec(fullname, _ShimLoader(None), origin=__name__, is_package=True)
        return None


class _ShimLoader(Loader):
    def __init__(self, exports: Exports | None) -> None:
        self._exports = exports

    def exec_module(self, module: ModuleType) -> None:
        if self._exports is not None:
            vars(module).update(self._exports.values())


def _parents(names: Mapping[str, Exports]) -> set[str]:
    levels = (name.split(".") for name in names)
    return {".".join(parts[:depth]) for parts in levels for depth in range(1, len(parts))}
