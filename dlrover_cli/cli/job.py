"""`dlrover-job`: what can be done about jobs besides running one, a group of commands per subject.

A command returns its exit code, or None for success, and raises DlroverError with a sentence.
"""

import sys
from signal import SIGINT
from typing import Annotated, NoReturn

import typer
import typer.main

from dlrover_cli import __version__
from dlrover_cli.cli import job_failover, job_rendezvous
from dlrover_cli.cli.stdout import printing
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.exit_codes import ExitCode, from_signal

PROG = "dlrover-job"

app = typer.Typer(
    help="Work with training jobs and with what decides about their failures.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(job_failover.app, name="failover")
app.add_typer(job_rendezvous.app, name="rendezvous")


def main(args: list[str] | None = None) -> int:
    """Run one command and return the exit code. Raises DlroverError, and SystemExit for help."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args, prog_name=PROG, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        asked = PROG if context is None else context.command_path
        raise UsageError(error.format_message(), hint=f"See {asked} --help") from error
    return code if isinstance(code, int) else ExitCode.SUCCESS


def console() -> NoReturn:
    """The console script `dlrover-job`."""
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        with printing():
            return main()
    except DlroverError as error:
        print(f"{PROG}: error: {error.message.rstrip('.')}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint.rstrip('.')}", file=sys.stderr)
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
