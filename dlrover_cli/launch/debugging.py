"""A debugger at this terminal: whether there can be one, and for whom."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError

if TYPE_CHECKING:
    from dlrover_cli.agent.debugging import Debugging


def check_debugging(settings: LaunchSettings) -> None:
    """Complain where nobody could talk to the debugger."""
    needs_terminal = settings.pdb or (settings.debug_rank is not None and not _is_for_ide(settings))
    if needs_terminal and not (os.isatty(0) and os.isatty(1)):
        name = "pdb" if settings.pdb else "debug_rank"
        raise ConfigError(
            f"{settings.origin(name).subject} needs a terminal to type at, and stdin or stdout "
            "here is none",
            setting=name,
            hint="start it from a terminal, without < and |, or use --debugger=debugpy",
        )
    if settings.debug_rank is not None and _is_for_ide(settings) and find_spec("debugpy") is None:
        raise ConfigError(
            f"{settings.origin('debugger').subject} needs the package debugpy",
            setting="debugger",
            hint="pip install 'dlrover-cli[debug]', or use --debugger=pdb",
        )


def debugging_of(settings: LaunchSettings) -> "Debugging":
    """What the agent has to arrange."""
    from dlrover_cli.agent.debugging import Debugging  # brings torch, which checks do without
    from dlrover_cli.workers.bootstrap.in_worker import debugger

    post_mortem = None
    if settings.pdb:
        post_mortem = debugger.POST_MORTEM
    elif settings.interactive and os.isatty(0):
        post_mortem = debugger.POST_MORTEM_ASKED
    return Debugging(
        settings.debug_rank,
        settings.debugger,
        post_mortem,
        os.ttyname(0) if post_mortem is not None else "",
    )


def tell_debugging(settings: LaunchSettings, say: Callable[[str], None]) -> None:
    """Say who can be looked into."""
    if settings.debug_rank is not None and not _is_for_ide(settings):
        say(
            f"rank {settings.debug_rank} has this terminal: breakpoint() opens pdb in it, the "
            "other ranks pass theirs by"
        )
    if settings.pdb and parse_nnodes(settings.nnodes)[1] > 1:
        say("--pdb is for the workers of this node; a failure on another node ends its session")


def _is_for_ide(settings: LaunchSettings) -> bool:
    from dlrover_cli.workers.bootstrap.in_worker.debugger import FOR_AN_IDE  # asked for seldom

    return settings.debugger == FOR_AN_IDE
