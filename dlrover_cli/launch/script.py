"""The script of a run: is it there, and how is it started?"""

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError


def check_script(settings: LaunchSettings, environ: Mapping[str, str]) -> None:
    """Complain about a script that cannot be started, before anything else is."""
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


def plugin_roots(settings: LaunchSettings) -> tuple[Path, ...]:
    """Where plugins are looked for besides the installed ones: here, and beside the script."""
    here = Path.cwd()
    if settings.module or settings.no_python:
        return (here,)
    beside = Path(settings.training_script).resolve().parent
    return (here,) if beside == here else (here, beside)


def _check_file(script: str) -> None:
    path = Path(script)
    if not path.exists():
        raise _bad(f"there is no script {script!r}", _nearest_file(path))
    if path.is_dir():
        if not (path / "__main__.py").exists():
            raise _bad(
                f"{script!r} is a directory without a __main__.py",
                "name the script inside it, or use -m for a package",
            )
    elif not os.access(path, os.R_OK):
        raise _bad(
            f"the script {script!r} cannot be read", f"check its permissions: ls -l {script}"
        )
    elif not path.is_file() and not zipfile.is_zipfile(path):
        raise _bad(f"{script!r} is not a file", "name a Python script")


def _nearest_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory {str(path.parent)!r}"
    near = get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean {str(path.parent / near[0])!r}?"
    return f"paths are relative to {str(Path.cwd())!r}; a module needs -m"


def _check_module(name: str) -> None:
    top = name.partition(".")[0]
    if name.endswith(".py"):
        raise _bad(
            f"-m takes a module name, not the file {name!r}", f"leave out -m, or write {name[:-3]}"
        )
    # Only the top-level name: finding a submodule would run the package's code in the launcher.
    if (
        top not in sys.builtin_module_names
        and PathFinder.find_spec(top, [os.getcwd(), *sys.path]) is None
    ):
        raise _bad(
            f"there is no module {top!r}",
            "run from the directory that holds it, or install it in this environment",
        )


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
