"""Importing a module that a user named: from the folders they work in, and with a reason if not.

The folders (`roots`: the current directory and the script's) come first on `sys.path` while the
module is imported, as they would for a script, and last afterwards, so that imports that the
plugin does later still find its neighbours while nothing else is hidden by them.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from dlrover_cli.errors import PluginError
from dlrover_cli.plugins import shims
from dlrover_cli.plugins.faults import (
    PluginFault,
    Subject,
    describe,
    must_propagate,
    user_frame,
)


def import_module(name: str, *, roots: Sequence[Path], subject: Subject) -> ModuleType:
    """Import `name`, or raise a PluginError about `subject` that says why it cannot be."""
    shims.install_import_shims()
    importlib.invalidate_caches()
    try:
        with importable(roots):
            return _import_level_by_level(name, roots)
    except BaseException as error:  # the boundary to the user's module, whatever it raises
        if must_propagate(error):
            raise
        raise _explain(error, name, roots, subject) from error


@contextmanager
def importable(roots: Sequence[Path]) -> Iterator[None]:
    """`roots` at the front of `sys.path` for the block, and at its end from then on."""
    entries = list(dict.fromkeys(str(root.absolute()) for root in roots))
    sys.path[:0] = entries
    try:
        yield
    finally:
        # The imported code may have changed sys.path: take out ours and leave the rest as it is.
        for entry in entries:
            if entry in sys.path:
                sys.path.remove(entry)
        sys.path.extend(entry for entry in entries if entry not in sys.path)


def file_of(module: ModuleType) -> str:
    """The file that a module came from, or what there is instead of one."""
    attributes = _attributes(module)
    origin = attributes.get("__file__") or getattr(attributes.get("__spec__"), "origin", None)
    return str(origin or next(iter(attributes.get("__path__", [])), "?"))


def root_of(module: ModuleType) -> Path | None:
    """The folder on `sys.path` that a module was imported from; None if it has no file."""
    file = _attributes(module).get("__file__")
    if not isinstance(file, str):
        return None
    depth = module.__name__.count(".") + is_package(module)
    return Path(file).absolute().parents[depth]


def is_package(module: ModuleType) -> bool:
    """Whether there can be modules below it."""
    return "__path__" in _attributes(module)


def hidden_candidates(name: str, module: ModuleType, roots: Sequence[Path]) -> list[Path]:
    """Files under `roots` for `name`, though `module` was loaded for it from elsewhere."""
    loaded = Path(file_of(module)).resolve()
    stems = [root.absolute().joinpath(*name.split(".")) for root in roots]
    files = [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")]
    return [path for path in dict.fromkeys(files) if _is_file(path) and path.resolve() != loaded]


def _import_level_by_level(name: str, roots: Sequence[Path]) -> ModuleType:
    """Import each package on the way, and let it have the folder of its name under each root.

    Without that a package of the same name elsewhere hides a user's folder: Python's own `test`
    is a regular package and wins over a folder `test/` without `__init__.py`.
    """
    parts = name.split(".")
    for depth in range(1, len(parts)):
        package = importlib.import_module(".".join(parts[:depth]))
        if is_package(package):
            _extend_path(package, [root.absolute().joinpath(*parts[:depth]) for root in roots])
    return importlib.import_module(name)


def _extend_path(package: ModuleType, folders: Sequence[Path]) -> None:
    present = list(package.__path__)
    wanted = [str(folder) for folder in dict.fromkeys(folders) if _is_dir(folder)]
    added = [folder for folder in wanted if folder not in present]
    if added:
        package.__path__ = [*present, *added]


def _explain(
    error: BaseException, name: str, roots: Sequence[Path], subject: Subject
) -> PluginError:
    """The sentence and the hint for an import that did not succeed."""
    match error:
        case ModuleNotFoundError(name=str(missing)) if _is_or_holds(missing, name):
            return _missing_module(missing, name, roots, subject)
        case ModuleNotFoundError(name=str(missing)):
            return subject.fault(
                PluginFault.MISSING_DEPENDENCY,
                f"module {name!r} was found, but it needs module {missing!r}, which is not "
                f"there{user_frame(error)}",
                hint=_dependency_hint(missing),
            )
        case SyntaxError(filename=str(filename)) if _is_file(Path(filename)):
            return subject.fault(
                PluginFault.SYNTAX_ERROR,
                f"module {name!r} cannot be imported, {filename}:{error.lineno or 1} is not "
                f"valid Python: {error.msg}",
                hint="mend that line",
            )
        case SystemExit():
            return subject.fault(
                PluginFault.EXITS_AT_IMPORT,
                f"module {name!r} calls {describe(error)} when it is imported{user_frame(error)}",
                hint='put what only a script does under `if __name__ == "__main__":`',
            )
        case _:
            return subject.fault(
                PluginFault.IMPORT_RAISED,
                f"importing module {name!r} raised {describe(error)}{user_frame(error)}",
                hint=f"see for yourself: python -c 'import {name}'",
            )


def _is_or_holds(missing: str, name: str) -> bool:
    return name == missing or name.startswith(f"{missing}.")


def _missing_module(
    missing: str, name: str, roots: Sequence[Path], subject: Subject
) -> PluginError:
    parent = missing.rpartition(".")[0]
    parent_module = sys.modules.get(parent)
    if parent_module is not None and not is_package(parent_module):
        return subject.fault(
            PluginFault.NO_MODULE,
            f"there is no module {name!r}: {parent!r} is the file {file_of(parent_module)} and "
            "not a folder with modules in it",
            hint=f"is it {parent}::{name.removeprefix(f'{parent}.')}?",
        )
    looked_for = Path(*missing.split(".")).with_suffix(".py")
    places = "".join(f"in {root.absolute()}, " for root in roots)
    near = _near_module(missing, roots)
    return subject.fault(
        PluginFault.NO_MODULE,
        f"there is no module {missing!r}; looked for {looked_for} {places}on PYTHONPATH and among "
        "the installed packages",
        hint=f"did you mean {name.replace(missing, near, 1)!r}?"
        if near
        else "start from the folder that holds it, or put that folder on PYTHONPATH",
    )


def _near_module(missing: str, roots: Sequence[Path]) -> str | None:
    *folders, wanted = missing.split(".")
    beside = {
        path.stem
        for root in roots
        for path in _listing(root.absolute().joinpath(*folders))
        if path.suffix == ".py" or (_is_dir(path) and path.name.isidentifier())
    }
    near = get_close_matches(wanted, sorted(beside), n=1)
    return ".".join([*folders, near[0]]) if near else None


def _listing(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _dependency_hint(missing: str) -> str:
    if missing.split(".")[0] == "dlrover":
        return (
            "install the dlrover package for it; without that package only these import paths "
            f"are there: {', '.join(shims.provided_modules('dlrover'))}"
        )
    return f"install what brings {missing.split('.')[0]!r}, or take the import out"


def _attributes(module: ModuleType) -> dict[str, Any]:
    """What a module holds. Not getattr, since it may have a `__getattr__` that raises; and what
    put itself in its own place in `sys.modules` need not be a module at all."""
    attributes: dict[str, Any] = getattr(module, "__dict__", {})
    return attributes


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
