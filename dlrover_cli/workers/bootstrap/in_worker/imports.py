"""Calling back once a module has been imported, without importing it ourselves."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any


class ImportWatch:
    """A finder that finds nothing itself; it leaves ``sys.meta_path`` with the last import."""

    def __init__(self, on_problem: "Callable[[str, Exception], None]") -> None:
        self._on_problem = on_problem
        self._awaited: dict[str, Callable[[ModuleType], None]] = {}

    def when_imported(self, name: str, callback: "Callable[[ModuleType], None]") -> None:
        """Call ``callback`` with the module: now if it is there, else right after its import."""
        module = sys.modules.get(name)
        if module is not None:
            self._call(name, callback, module)
            return
        self._awaited[name] = callback
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "Any":
        if name not in self._awaited:
            return None
        spec = self._find(name, path, target)
        if spec is not None:
            try:
                self._call_after_loading(name, spec.loader)
            except Exception as error:  # noqa: BLE001 - an unusual loader costs us, not the import
                self._on_problem(name, error)
        return spec

    def _find(self, name: str, path: "Sequence[str] | None", target: "ModuleType | None") -> "Any":
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _call_after_loading(self, name: str, loader: "Any") -> None:
        """Shadow the loader's method on this one instance; the shadow goes with its first use."""
        if isinstance(loader, type):
            raise TypeError(f"{loader.__name__} is shared by all modules")
        execute = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            del loader.exec_module
            execute(module)
            # Only now: a spec may be asked for without an import, and an import may fail.
            callback = self._awaited.pop(name, None)
            if not self._awaited and self in sys.meta_path:
                sys.meta_path.remove(self)
            if callback is not None:
                self._call(name, callback, module)

        loader.exec_module = exec_module

    def _call(
        self, name: str, callback: "Callable[[ModuleType], None]", module: "ModuleType"
    ) -> None:
        try:
            callback(module)
        except Exception as error:  # noqa: BLE001 - the import was the user's and succeeded
            self._on_problem(name, error)
