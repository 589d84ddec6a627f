"""The one module that knows Typer: makes the command from the settings and reads flags with it.

Typer has every option natively, in both spellings, with its panel, choices and completion. Where
torchrun's argparse reads a command line differently, `config.argv` has settled it before.
"""

import re
import shutil
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

import typer
import typer.core
import typer.main

from dlrover_cli import __version__
from dlrover_cli.cli import COMPLETE_VARIABLE, PROG
from dlrover_cli.cli.help_view import INTRO, default_text, help_page
from dlrover_cli.config.declaring import Kind, Panel, Setting
from dlrover_cli.config.settings import SETTINGS
from dlrover_cli.errors import UsageError


def read_flags(tokens: Sequence[str], environ: Mapping[str, str]) -> dict[str, object]:
    """What a normalised command line says, by field name; None for what it does not mention.

    Raises SystemExit after `--help` and its like.
    """
    command = build_command()
    command.styled = "NO_COLOR" not in environ and environ.get("TERM") != "dumb"
    try:
        flags = command.main(list(tokens), prog_name=PROG, standalone_mode=False)
    except typer.TyperException as error:
        raise UsageError(error.format_message(), hint=f"See {PROG} --help") from error
    if not isinstance(flags, dict):
        raise SystemExit(flags)
    return flags


def complete(environ: MutableMapping[str, str]) -> None:
    """Answer the shell's question in `environ`, which must be the process's own, and exit."""
    rejoin_words(environ)
    build_command().main([], prog_name=PROG, complete_var=COMPLETE_VARIABLE)


def rejoin_words(environ: MutableMapping[str, str]) -> None:
    """Put together in `environ` what Bash has torn apart; other shells do not do that."""
    if "COMP_WORDS" in environ:
        words, current = rejoined(environ["COMP_WORDS"].split("\n"), int(environ["COMP_CWORD"]))
        environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(words), str(current)


def rejoined(words: Sequence[str], current: int) -> tuple[list[str], int]:
    """Undo Bash's splitting of `--tee=0:1` at `=` and `:`; `current` is the word to complete."""
    whole: list[str] = []
    at = 0
    glue = False
    for index, word in enumerate(words):
        breaks = bool(re.fullmatch("[=:]+", word)) and len(whole) > 1
        if breaks or glue:
            whole[-1] += word
        else:
            whole.append(word)
        glue = breaks
        if index == current:
            at = len(whole) - 1
    return whole, at if current < len(words) else len(whole)


class LaunchCommand(typer.core.TyperCommand):
    """The command with our help page, values left as texts, and completion up to the script."""

    styled = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave values as the texts they are: `config.values` reads those of every source alike.

        Typer's own reading is stricter than torchrun's, and loads pydantic, which takes 0.1 to
        0.2 s of every run and of every press of the tab key.
        """
        given, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        parameters = self.get_params(ctx)
        answers = any(each.callback and each.name in given for each in parameters)
        if not ctx.resilient_parsing and (answers or given.get("training_script") is None):
            return super().parse_args(ctx, args)
        exposed = [each.name for each in parameters if each.expose_value]
        ctx.params.update((name, given.get(name)) for name in exposed)
        ctx.args = rest
        ctx._opt_prefixes.update(("-", "--"))  # what completion takes for the start of an option
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_page(shutil.get_terminal_size().columns, styled=self.styled))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        if ctx.params.get("training_script") is not None:
            return []
        given = {
            name
            for each in self.get_params(ctx)
            if ctx.params.get(each.name) is not None and not each.multiple
            for name in each.opts
        }
        items = super().shell_complete(ctx, incomplete)
        fitting = [item for item in items if "_" not in item.value or "_" in incomplete]
        return [item for item in fitting if item.value not in given]


def build_command() -> LaunchCommand:
    """The Typer command of `dlrover-run`."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(
        name=PROG,
        cls=LaunchCommand,
        help=INTRO,
        context_settings={
            "allow_interspersed_args": False,
            "help_option_names": ["-h", "--help"],
        },
    )(_callback())
    command = typer.main.get_command(app)
    assert isinstance(command, LaunchCommand)
    return command


def _callback() -> Callable[..., dict[str, object]]:
    """A function whose signature declares all options; it gives back what it is called with."""

    def flags(**given: object) -> dict[str, object]:
        return given

    parameters = [_script(), _script_args(), *map(_option, SETTINGS), _version()]
    signature = Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation, default in parameters
        ]
    )
    flags.__signature__ = signature  # type: ignore[attr-defined]
    flags.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return flags


def _option(setting: Setting) -> tuple[str, Any, Any]:
    option = typer.Option(
        *setting.spellings,
        help=setting.about,
        metavar=setting.metavar or None,
        rich_help_panel=setting.panel.value,
        show_default=default_text(setting) or False,
        autocompletion=(lambda: list(setting.suggestions)) if setting.suggestions else None,
    )
    # None is "not given": defaults belong to the settings, below the environment and the file.
    return setting.name, Annotated[_type(setting) | None, option], None


def _type(setting: Setting) -> Any:
    if setting.choices:
        return Literal[setting.choices]
    match setting.kind:
        case Kind.FLAG:
            return bool
        case Kind.WHOLE:
            return int
        case Kind.NUMBER:
            return float
        case Kind.TEXTS:
            return list[str] if setting.repeatable else str
        case Kind.TEXT:
            return str


def _script() -> tuple[str, Any, Any]:
    argument = typer.Argument(metavar="SCRIPT", help="The script, module or program to run.")
    return "training_script", Annotated[str, argument], Parameter.empty


def _script_args() -> tuple[str, Any, Any]:
    argument = typer.Argument(metavar="[ARGS]...", help="Passed on to SCRIPT as they are.")
    return "training_script_args", Annotated[list[str] | None, argument], None


def _version() -> tuple[str, Any, Any]:
    def show(value: bool | None) -> None:
        if value:
            typer.echo(f"{PROG} {__version__}")
            raise typer.Exit

    option = typer.Option(
        "--version",
        help="Show the version.",
        is_eager=True,
        callback=show,
        rich_help_panel=Panel.INSPECT.value,
    )
    return "version", Annotated[bool | None, option], None
