"""`dlrover-job doctor`: what is wrong with this machine, and what to do about it."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from dlrover_cli.doctor.commands import Commands
    from dlrover_cli.doctor.examine import Examined
    from dlrover_cli.doctor.machine import Machine

app = commands()


@command(app, "doctor")
def examine_machine(
    checks: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHECK", help="Only these; by default all."),
    ] = None,
    rdzv_endpoint: Annotated[
        str | None,
        typer.Option(
            "--rdzv-endpoint",
            "--rdzv_endpoint",
            metavar="HOST[:PORT]",
            help="Where the nodes are to meet; by default what the settings at hand say.",
        ),
    ] = None,
    extension: Annotated[
        str | None,
        typer.Option(
            "--dynamic-failover-extension",
            "--dynamic_failover_extension",
            metavar="MODULE::CLASS",
            help="Load this one; by default what the settings at hand name.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long it may take; all checks run at once."),
    ] = 20.0,
    output: Output = None,
) -> int:
    """Say what is wrong with this machine, and what to do.

    Versions, devices, names, ports, shared memory, limits, clock, files, extensions and engines,
    for the settings in the environment and in the current directory. Nothing of yours is changed.

    Exits with 1 if there is a problem, with 0 if there are warnings at most.
    """
    from dlrover_cli.cli.doctor_view import show
    from dlrover_cli.doctor.commands import Commands
    from dlrover_cli.doctor.examine import chosen_checks, examine
    from dlrover_cli.doctor.finding import Level, worst

    if timeout <= 0:
        raise UsageError(f"--timeout must be more than 0 and is {timeout:g}")
    chosen = chosen_checks(checks or [])
    flags = {"rdzv_endpoint": rdzv_endpoint, "dynamic_failover_extension": extension}
    with closing(Commands()) as commands:
        machine, complaints = _machine(flags, timeout, commands)
        if output is not None:
            started = time.monotonic()
            examined = [*complaints, *examine(machine, chosen)]
            print_document(_document(examined, time.monotonic() - started), output)
        else:
            with closing(_Progress()) as progress:
                found = examine(machine, chosen, progress.wait)
                examined = show(chain(complaints, found), progress.clear)
    findings = [each for _, found in examined for each in found]
    return ExitCode.FAILURE if worst(findings) is Level.PROBLEM else ExitCode.SUCCESS


def _machine(
    flags: Mapping[str, str | None], timeout: float, commands: "Commands"
) -> "tuple[Machine, list[Examined]]":
    """With the settings at hand; where those cannot be read, without them, and a finding."""
    from dlrover_cli.config.derive import check_settings
    from dlrover_cli.config.resolve import resolve_settings
    from dlrover_cli.config.settings import LaunchSettings
    from dlrover_cli.doctor.finding import problem
    from dlrover_cli.doctor.machine import Machine
    from dlrover_cli.errors import ConfigError

    complaints: list[Examined] = []
    try:
        settings = resolve_settings({**flags, "training_script": ""}, os.environ, Path())
        check_settings(settings)
    except ConfigError as error:
        why = "dlrover-run refuses to start here"
        found = problem("settings", error.message, why=why, fix=error.hint or "mend it")
        complaints.append(("settings", [found]))
        given = {name: value for name, value in flags.items() if value is not None}
        settings = LaunchSettings(training_script="", **given)  # type: ignore[arg-type]
    machine = Machine(
        settings=settings, environ=dict(os.environ), seconds=timeout, run=commands.run
    )
    return machine, complaints


def _document(examined: "list[Examined]", seconds: float) -> dict[str, Any]:
    from dlrover_cli.doctor.finding import worst

    return {
        "worst": worst(each for _, found in examined for each in found).value,
        "seconds": round(seconds, 3),
        "findings": [
            {"check": name, **each.to_json()} for name, found in examined for each in found
        ],
    }


class _Progress:
    """A line on a terminal that says for which check we wait, and goes away again."""

    def __init__(self) -> None:
        from dlrover_cli.launch.status.showing import may_draw

        on_a_terminal = sys.stderr.isatty() and sys.stdout.isatty()
        self._is_on = on_a_terminal and may_draw(os.environ)

    def wait(self, name: str) -> None:
        if self._is_on:
            print(f"{_CLEAR}looking at {name} …", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_on:
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    close = clear


_CLEAR = "\r\033[K"
