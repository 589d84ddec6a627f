"""`dlrover-job`: submit jobs, look at runs, end them, and try what decides about their failures.

A command returns its exit code, or None for success, and raises DlroverError with a sentence. Its
module is imported when the command is named: what one of them needs costs the others nothing.
"""

import os
import sys
from io import TextIOWrapper
from signal import SIGINT
from typing import Annotated, Any, NoReturn

import typer
import typer.main

from dlrover_cli import __version__
from dlrover_cli.cli.job_group import CommandsOnDemand, JobGroup
from dlrover_cli.cli.stdout import printing
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.words import bounded

PROG = "dlrover-job"
COMPLETE_VARIABLE = "_DLROVER_JOB_COMPLETE"
COMMANDS = {
    "submit": "dlrover_cli.cli.job_submit",
    "list": "dlrover_cli.cli.job_runs",
    "show": "dlrover_cli.cli.job_show",
    "top": "dlrover_cli.cli.job_top",
    "why": "dlrover_cli.cli.job_why",
    "logs": "dlrover_cli.cli.job_logs",
    "stacks": "dlrover_cli.cli.job_stacks",
    "restart": "dlrover_cli.cli.job_touch",
    "abort": "dlrover_cli.cli.job_touch",
    "node-failover": "dlrover_cli.cli.job_touch",
    "dump": "dlrover_cli.cli.job_dump",
    "stop": "dlrover_cli.cli.job_stop",
    "cleanup": "dlrover_cli.cli.job_cleanup",
    "doctor": "dlrover_cli.cli.job_doctor",
    "plugins": "dlrover_cli.cli.job_plugins",
    "failover": "dlrover_cli.cli.job_failover",
    "extender": "dlrover_cli.cli.job_extender",
    "rendezvous": "dlrover_cli.cli.job_rendezvous",
}


class _Commands(JobGroup):
    """All of them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = CommandsOnDemand(COMMANDS)  # type: ignore[assignment]


app = typer.Typer(
    cls=_Commands,
    help="Submit jobs, look at runs, end them, and try what decides about failures.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(args: list[str] | None = None) -> int:
    """Run one command and return the exit code. Raises DlroverError, and SystemExit for help."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args, prog_name=PROG, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        asked = PROG if context is None else context.command_path
        raise UsageError(_plainly(error.format_message()), hint=f"See {asked} --help") from error
    return code if isinstance(code, int) else ExitCode.SUCCESS


def _plainly(message: str) -> str:
    for of_typer, plain in _PLAINLY.items():
        message = message.replace(of_typer, plain)
    return message


_PLAINLY = {
    "Input should be a valid integer, unable to parse string as an integer": "give a whole number",
    "Input should be a valid number, unable to parse string as a number": "give a number",
}


def console() -> NoReturn:
    """The console script `dlrover-job`."""
    if os.environ.get(COMPLETE_VARIABLE):
        _complete()
    if isinstance(sys.stdout, TextIOWrapper):
        # A path or a reason may have characters that this terminal's encoding does not know.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(_exit_code())


def _complete() -> NoReturn:
    """Answer the shell's question and exit; whatever goes wrong, the screen is left alone."""
    from dlrover_cli.cli.typer_adapter import rejoin_words

    try:
        rejoin_words(os.environ)
        typer.main.get_command(app).main([], prog_name=PROG, complete_var=COMPLETE_VARIABLE)
    except Exception:  # noqa: BLE001 - nobody has asked for anything yet
        sys.exit(ExitCode.FAILURE)
    sys.exit(ExitCode.SUCCESS)


def _exit_code() -> int:
    try:
        with printing():
            return main()
    except DlroverError as error:
        print(f"{PROG}: error: {bounded(error.message).rstrip('.')}", file=sys.stderr)
        if error.hint:
            print(f"hint: {bounded(error.hint).rstrip('.')}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return from_signal(SIGINT)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True)
    ] = False,
) -> None:
    if version:
        typer.echo(f"{PROG} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
