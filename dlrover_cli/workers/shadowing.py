"""Files beside a script that have the names of modules which a warm worker has loaded already.

In a new interpreter ``import queue`` finds the ``queue.py`` beside the script. In a forked one it
would find the module that is there.
"""

import os
import sys
from collections.abc import Iterable
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

# Every interpreter has these before its script's first line, or makes them itself.
_ALWAYS_THERE = frozenset(
    {"__main__", "__mp_main__", "_distutils_hack", "encodings", "sitecustomize", "usercustomize"}
)


def hidden_module(directory: str, except_for: Iterable[str] = ()) -> tuple[str, str] | None:
    """A module that is loaded although its name belongs to a file in the directory, and the file.

    ``except_for`` are packages that will be forgotten.
    """
    try:
        for name in sorted(_loaded_packages() - _ALWAYS_THERE - frozenset(except_for)):
            file = _file_in(directory, name)
            if file is not None and not _is_loaded_from(name, file):
                return name, file
    finally:
        sys.path_importer_cache.pop(directory, None)
    return None


def _loaded_packages() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


def _file_in(directory: str, name: str) -> str | None:
    # These two come first, whatever is beside a script.
    if BuiltinImporter.find_spec(name) is not None or FrozenImporter.find_spec(name) is not None:
        return None
    spec = PathFinder.find_spec(name, [directory])
    return None if spec is None or not spec.has_location else spec.origin


def _is_loaded_from(name: str, file: str) -> bool:
    loaded = getattr(sys.modules.get(name), "__file__", None)
    return loaded is not None and os.path.realpath(loaded) == os.path.realpath(file)
