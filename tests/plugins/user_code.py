"""A user's folder of modules for a test, and an interpreter that forgets them afterwards."""

import importlib
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


class UserCode:
    """Writes real modules into one folder, which is what a user's current directory would be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.roots = [root]

    def write(self, name: str, source: str) -> Path:
        """`pkg/mod.py` with the given source; folders are made, without `__init__.py`."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path


@contextmanager
def forgetting_imports(root: Path) -> Iterator[None]:
    """Undo what loading does to the interpreter: `sys.path`, finders, the modules of `root`."""
    path, finders, modules = list(sys.path), list(sys.meta_path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        for name in set(sys.modules) - modules:
            if _is_stand_in(name) or _is_under(root, name):
                del sys.modules[name]
        importlib.invalidate_caches()


def _is_stand_in(name: str) -> bool:
    return name.split(".")[0] in {"dlrover", "torchelastic", "test"}


def _is_under(root: Path, name: str) -> bool:
    module = sys.modules[name]
    if not isinstance(module, ModuleType):
        return True  # only a test puts such a thing there
    attributes = vars(module)  # not getattr: a module may have a __getattr__
    places = [attributes.get("__file__"), *attributes.get("__path__", [])]
    return any(isinstance(place, str) and root in Path(place).parents for place in places)
