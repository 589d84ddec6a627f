"""`dlrover-run`: argv in, a run or a plan out, every error as one sentence and one hint.

`main` is for callers in Python and raises as torchrun's does. `console` is the script: it turns
what `main` raises into lines on stderr and an exit code. Torch is not imported before a run starts.
"""

import atexit
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dlrover_cli.cli import COMPLETE_VARIABLE, PROG
from dlrover_cli.cli.stdout import printing
from dlrover_cli.config.argv import normalise_argv
from dlrover_cli.config.derive import check_settings
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.telling_sources import telling_sources
from dlrover_cli.entry import InterruptRaises
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.words import bounded
from dlrover_cli.workers import light_exit  # noqa: F401 - before anything that registers an exit

if TYPE_CHECKING:
    from dlrover_cli.launch.place import Place
    from dlrover_cli.launch.run import Launch

_T = TypeVar("_T")


def main(args: list[str] | None = None) -> None:
    """Run a training as the command line says.

    A command line that cannot be read is explained on stderr and ends in SystemExit(2), as with
    argparse; `--help`, `--version` and `--dry-run` end in SystemExit(0). Whatever goes wrong after
    that is raised.
    """
    prepared = _prepare(sys.argv[1:] if args is None else list(args))
    if prepared is not None:
        from dlrover_cli.launch.helpers import Helpers
        from dlrover_cli.launch.run import run

        run(prepared, Helpers(), _place(prepared.settings))


def console() -> None:
    """The console script `dlrover-run`.

    Ends the process, except in a worker that was forked on the way: that one has run its script
    when it returns, and comes to its end as any interpreter does.
    """
    if os.environ.get(COMPLETE_VARIABLE):
        from dlrover_cli.cli.typer_adapter import complete

        complete(os.environ)
    code, prepared = _outcome_of(lambda: _prepare(sys.argv[1:]))
    if prepared is None:
        _exit(code)
    from dlrover_cli.launch.helpers import fork_helpers, serve_as_zygote
    from dlrover_cli.launch.run import run

    # Here, with nothing open and nothing to undo, since a worker comes back to this very place.
    helpers = fork_helpers(prepared.worker_start)
    if isinstance(helpers, socket.socket):
        serve_as_zygote(helpers, prepared.worker_start)
        return

    def go() -> None:
        with InterruptRaises():
            run(prepared, helpers, _place(prepared.settings))

    code, _ = _outcome_of(go)
    _exit(code)


def _prepare(argv: list[str]) -> "Launch | None":
    try:
        settings = read_settings(argv)
    except UsageError as error:
        explain(error)
        raise SystemExit(int(error.exit_code)) from None
    try:
        _place(settings)  # what is wrong with it is said before anything is loaded
    except UsageError as error:
        explain(error)
        raise SystemExit(int(error.exit_code)) from None
    if settings.platform != "local":
        _run_on_platform(settings, argv)
        return None
    if settings.dry_run:
        _show_plan(settings)
        raise SystemExit(int(ExitCode.SUCCESS))
    from dlrover_cli.launch.run import prepare

    with InterruptRaises():
        return prepare(settings, argv)


def _place(settings: LaunchSettings) -> "Place | None":
    """Who has a say in whether the run may start on this node."""
    if not settings.extender and not settings.extender_url:
        return None
    from dlrover_cli.launch.voice import say
    from dlrover_cli.scheduling.foreground import LocalPlace
    from dlrover_cli.scheduling.of_settings import resources_of, scheduling_of
    from dlrover_cli.telemetry.run_dir import state_directory

    check_settings(settings)
    config = scheduling_of(settings, say)
    if config is None:
        return None
    return LocalPlace(config, resources_of(settings), say, state_directory(os.environ))


def _run_on_platform(settings: LaunchSettings, argv: list[str]) -> None:
    """Every platform has a module with these two functions; it is loaded when it is named."""
    from dlrover_cli.launch.notifying import hide_secrets
    from dlrover_cli.launch.voice import be_quiet

    be_quiet(settings.quiet)
    platform = import_module(f"dlrover_cli.platforms.{settings.platform}.launch")
    check_settings(settings)
    if not settings.dry_run:
        with InterruptRaises():
            platform.launch(settings, argv)
        return
    with printing():
        print(hide_secrets(settings, platform.plan(settings, argv)), end="")
    raise SystemExit(int(ExitCode.SUCCESS))


def _exit(code: int) -> NoReturn:
    """End the process as the interpreter would, without tearing down every module first.

    That takes a third of a second once torch is loaded, and is where a thread that is still blocked
    in a store's C++ code could crash us.
    """
    if "torch" not in sys.modules:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads and executors
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the process was started without it
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


def read_settings(argv: Sequence[str]) -> LaunchSettings:
    """The settings that `argv`, this process's environment and the current directory make up."""
    tokens = normalise_argv(argv)
    # Most usage errors are found without Typer, and are told nearly twice as fast without it.
    from dlrover_cli.cli.typer_adapter import read_flags

    with printing():  # --help and --version
        flags = read_flags(tokens, os.environ)
    settings = resolve_settings(flags, os.environ, Path())
    if "SLURM_STEP_ID" not in os.environ:
        return settings
    from dlrover_cli.platforms.slurm.step import fill_from_step

    return fill_from_step(settings, os.environ)


def explain(error: DlroverError) -> None:
    """Say on stderr what is wrong and what to do."""
    stop = "" if error.message.endswith((".", "?", "!")) else "."
    print(f"{PROG}: error: {bounded(error.message)}{stop}", file=sys.stderr)
    if error.hint:
        print(f"hint: {bounded(error.hint)}", file=sys.stderr)


def _outcome_of(part: Callable[[], _T]) -> tuple[int, _T | None]:
    """The exit code that a part of the run leads to, and its value if it has one."""
    try:
        return ExitCode.SUCCESS, part()
    except DlroverError as error:
        if not getattr(error, "is_told", False):
            explain(error)
        return error.exit_code, None
    except KeyboardInterrupt:
        return from_signal(SIGINT), None
    except Exception as error:
        # The boundary of the process: an outcome of the run gets its code, a bug its traceback.
        from dlrover_cli.launch.outcome import exit_code_of

        code = exit_code_of(error)
        if code is None:
            raise
        if not hasattr(error, "ending"):  # else the run has told it already
            print(f"{PROG}: {error}", file=sys.stderr)
        return code, None


def _show_plan(settings: LaunchSettings) -> None:
    from dlrover_cli.cli.plan_view import render, to_json
    from dlrover_cli.launch.plan import make_plan

    check_settings(settings)
    # A plugin may print while it loads.
    with contextlib.redirect_stdout(sys.stderr), telling_sources(settings):
        plan = make_plan(settings)
    with printing():
        if settings.json_output:
            print(to_json(plan))
        else:
            render(plan)
