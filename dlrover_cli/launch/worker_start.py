"""Whether the workers of a run can be forked from a warm process, and if not, why not."""

import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dlrover_cli.config.settings import LaunchSettings

_ABOUT_THE_START = ("PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE")

AUTO = "auto"
NONE = "none"

STANDARD_PRELOADS = (
    "torch",
    "numpy",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.optim",
    "torch._dynamo",
)
"""What a training touches by its first step; `torch._dynamo` is a second of every optimizer's."""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """How the workers are started; ``reason`` says why they are fresh although nobody asked."""

    warm: bool
    reason: str | None = None
    preloads: tuple[str, ...] = ()
    beside: str | None = None
    """Where the workers look first for modules."""
    learns: bool = False
    """Whether what the first workers load is loaded for the next ones too."""


def plan_worker_start(
    settings: LaunchSettings,
    environ: Mapping[str, str],
    *,
    platform: str = sys.platform,
    interpreter_options: tuple[str, ...] | None = None,
    modules: Mapping[str, ModuleType] = sys.modules,
) -> WorkerStart:
    """Decide on warm or fresh. Looks at the script's first bytes and nothing else."""
    if settings.worker_start == "fresh" or settings.no_python or settings.run_path:
        return WorkerStart(warm=False)
    if interpreter_options is None:
        interpreter_options = options_of_interpreter(sys.orig_argv)
    reason = (
        _why_not_here(platform)
        or _why_not_this_interpreter(environ, interpreter_options)
        or _why_not_these_customisations(modules)
        or _why_not_these_settings(settings)
    )
    if reason is not None:
        return WorkerStart(warm=False, reason=reason)
    return WorkerStart(
        warm=True,
        preloads=preloads_of(settings.preload),
        beside=_first_on_path(settings),
        learns=AUTO in settings.preload,
    )


def preloads_of(asked: tuple[str, ...]) -> tuple[str, ...]:
    """The modules to load, in order, for what ``--preload`` says."""
    named = tuple(name for name in asked if name not in (AUTO, NONE))
    return (*(STANDARD_PRELOADS[:1] if NONE in asked else STANDARD_PRELOADS), *named)


def options_of_interpreter(orig_argv: list[str]) -> tuple[str, ...]:
    """What stands between the interpreter and the program on the command line."""
    options = []
    for word in orig_argv[1:]:
        if not word.startswith("-") or word in ("-m", "-c", "-"):
            break
        options.append(word)
    return tuple(options)


def _why_not_here(platform: str) -> str | None:
    return None if platform == "linux" else f"warm workers need Linux, and this is {platform}"


def _why_not_this_interpreter(environ: Mapping[str, str], options: tuple[str, ...]) -> str | None:
    other = environ.get("PYTHON_EXEC", sys.executable)
    if other != sys.executable:
        return f"PYTHON_EXEC names another interpreter, {other}"
    # A fresh worker is started without them, so a fork of this process would not be the same.
    differing = [option for option in options if option != "-u"]
    if differing:
        return f"this launcher's interpreter was started with {' '.join(differing)}"
    for name in _ABOUT_THE_START:
        if environ.get(name):
            return f"{name} is set, which is about the start of an interpreter"
    return None


def _why_not_these_customisations(modules: Mapping[str, ModuleType]) -> str | None:
    """A user's own; one of the distribution lies with the standard library."""
    for name in ("sitecustomize", "usercustomize"):
        file = getattr(modules.get(name), "__file__", None)
        if file is not None and os.path.dirname(file) != os.path.dirname(os.__file__):
            return f"{file} is run at the start of every interpreter"
    return None


def _why_not_these_settings(settings: LaunchSettings) -> str | None:
    if settings.numa_binding is not None:
        return "--numa-binding binds a program as it is started"
    if settings.module:
        return None
    script = Path(settings.training_script)
    if not script.is_file() or script.suffix == ".pyc" or zipfile.is_zipfile(script):
        return f"{settings.training_script} is not the text of a script"
    return None


def _first_on_path(settings: LaunchSettings) -> str | None:
    """What stands first in a worker's ``sys.path``, if it is the script's or the module's."""
    if sys.flags.safe_path:
        return None
    if settings.module:
        return os.getcwd()
    return os.path.dirname(os.path.realpath(settings.training_script))
