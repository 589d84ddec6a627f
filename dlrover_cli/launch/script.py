"""The script of a run: is it there, and how is it started?"""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError, LaunchError


def check_script(settings: LaunchSettings, environ: Mapping[str, str]) -> None:
    """Complain about a script that cannot be started, before anything else is."""
    _check_directory()
    script = settings.training_script
    if settings.no_python and not settings.run_path:
        _check_program(script, environ)
    elif settings.module:
        if "PYTHON_EXEC" not in environ:
            _check_module(script)
    else:
        _check_file(script)


def entry_point_of(
    settings: LaunchSettings, environ: Mapping[str, str]
) -> tuple[str | Callable[..., Any], tuple[str, ...]]:
    """What the agent starts, and its arguments: the same command line as torchrun's."""
    script, args = settings.training_script, settings.training_script_args
    if settings.run_path:
        from torch.distributed.run import run_script_path

        return run_script_path, (script, *args)
    if settings.no_python:
        return script, args
    python = environ.get("PYTHON_EXEC", sys.executable)
    return python, ("-u", *(["-m"] if settings.module else []), script, *args)


def name_of_script(script: str) -> str:
    """What a run is called after its script: `train` for `src/train.py`, a module as it is."""
    return Path(script).name.removesuffix(".py") or script


def plugin_roots(settings: LaunchSettings) -> tuple[Path, ...]:
    """Where plugins are looked for besides the installed ones: here, and beside the script."""
    here = Path.cwd()
    if settings.module or settings.no_python:
        return (here,)
    beside = Path(settings.training_script).resolve().parent
    return (here,) if beside == here else (here, beside)


def _check_directory() -> None:
    try:
        os.getcwd()
    except OSError as error:  # removed under our feet; torch itself cannot be loaded then
        raise LaunchError(
            f"the current directory cannot be used: {error.strerror}",
            hint="cd into one that exists",
        ) from error


def _check_file(script: str) -> None:
    try:
        mode = os.stat(script).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise _bad(f"there is no script {script!r}", _nearest_file(Path(script))) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _bad(f"the script {script!r} cannot be read: {reason}", "check the path") from error
    if stat.S_ISDIR(mode):
        if not os.path.exists(os.path.join(script, "__main__.py")):
            raise _bad(
                f"{script!r} is a directory without a __main__.py",
                "name the script inside it, or use -m for a package",
            )
    elif not os.access(script, os.R_OK):
        raise _bad(
            f"the script {script!r} cannot be read", f"check its permissions: ls -l {script}"
        )


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no directory {str(path.parent)!r}"
    near = get_close_matches(path.name, [entry.name for entry in _entries(path.parent)], n=1)
    if near:
        return f"did you mean {str(path.parent / near[0])!r}?"
    return f"paths are relative to {str(Path.cwd())!r}; a module needs -m"


def _check_module(name: str) -> None:
    if name.endswith(".py"):
        raise _bad(
            f"-m takes a module name, not the file {name!r}", f"leave out -m, or write {name[:-3]}"
        )
    top, *inner = name.split(".")
    spec, outer = _find_top(top), top
    if spec is None:
        raise _bad(
            f"there is no module {top!r}",
            "run from the directory that holds it, or install it in this environment",
        )
    # What cannot be looked into without running a package's code is left to the worker.
    for part in inner:
        if not _is_plain_package(spec):
            return
        package, spec = spec, _find_inside(spec, part)
        if spec is None:
            raise _bad(
                f"there is no module {part!r} in {outer!r}", _nearest_in(package, outer, part)
            )
        outer = f"{outer}.{part}"
    if _is_plain_package(spec) and _find_inside(spec, "__main__") is None:
        raise _bad(
            f"{name!r} is a package without a __main__ module, which -m would run",
            f"name a module in it, as in -m {name}.train",
        )


def _find_top(name: str) -> ModuleSpec | None:
    """A top-level module as ``python -m`` finds it: here first, then by every importer."""
    here = PathFinder.find_spec(name, [os.getcwd()])
    if here is not None:
        return here
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _find_inside(package: ModuleSpec, name: str) -> ModuleSpec | None:
    # By its bare name: with the full one, a folder without __init__ would have us import parents.
    return PathFinder.find_spec(name, list(package.submodule_search_locations or ()))


def _is_plain_package(spec: ModuleSpec) -> bool:
    """Whether all its modules are files in its folders, as far as its source shows."""
    if spec.submodule_search_locations is None:
        return False
    if spec.origin is None:  # a namespace package has no code of its own
        return True
    try:
        source = Path(spec.origin).read_text(errors="replace")
    except OSError:
        return False
    return not any(word in source for word in ("__path__", "sys.modules", "meta_path"))


def _nearest_in(package: ModuleSpec, package_name: str, name: str) -> str:
    folders = list(package.submodule_search_locations or ())
    names = [path.stem for folder in folders for path in _entries(folder)]
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {package_name}.{near[0]}?"
    return f"it was looked for in {', '.join(folders)}"


def _entries(folder: str | Path) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except OSError:
        return []


def _check_program(program: str, environ: Mapping[str, str]) -> None:
    if shutil.which(program, path=environ.get("PATH")) is not None:
        return
    if os.path.dirname(program) and os.path.isfile(program):
        raise _bad(
            f"{program!r} is not executable",
            f"chmod +x {program}, or leave out --no-python to run it with Python",
        )
    raise _bad(
        f"there is no program {program!r}",
        "check the spelling and the PATH; a Python script needs no --no-python",
    )


def _bad(message: str, hint: str) -> ConfigError:
    return ConfigError(message, setting="training_script", hint=hint)
