"""How commands of `dlrover-job` are declared, and read without loading what they do not need.

Typer reads values with pydantic, which takes longer to load than most commands take to run, and is
felt at every press of the tab key. Most command lines here are names and flags: what is text
already is taken as it is, and only a value that is something else is left to Typer.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

import typer
import typer.core
import typer.main

from dlrover_cli.entry import InterruptRaises

_Function = TypeVar("_Function", bound=Callable[..., Any])


class JobCommand(typer.core.TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any("--output" in each.opts for each in self.params):
            args = _with_short_form(args)
        rest = _read_texts(self, ctx, args)
        if rest is None or (rest and not ctx.resilient_parsing):
            return super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        with InterruptRaises():
            return super().invoke(ctx)


class JobGroup(typer.core.TyperGroup):
    """Commands under one name; by itself it shows its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = _read_texts(self, ctx, args)
        if rest is None:
            return super().parse_args(ctx, args)
        ctx._protected_args, ctx.args = rest[:1], rest[1:]
        return ctx.args  # type: ignore[no-any-return]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


class CommandsOnDemand(Mapping[str, Any]):
    """Commands by name, whose modules are imported when they are looked at."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        """``modules`` has the module of each command; its `app` is the command or holds it."""
        self._modules = modules

    def __getitem__(self, name: str) -> Any:
        group = typer.main.get_group(import_module(self._modules[name]).app)
        return group if group.name == name else group.commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def command_group(about: str, name: str) -> typer.Typer:
    """An empty group; commands are added to it with `command`."""
    group = typer.Typer(
        name=name,
        cls=JobGroup,
        help=about,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @group.callback()
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return group


def commands() -> typer.Typer:
    """What holds the commands of a module that stand directly below `dlrover-job`."""
    return typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)


def command(app: typer.Typer, name: str) -> Callable[[_Function], _Function]:
    """Decorates the function behind a command."""
    return app.command(name, cls=JobCommand)


def _with_short_form(args: list[str]) -> list[str]:
    """``--json`` is for ``-o json``, in every command that has it."""
    end = args.index("--") if "--" in args else len(args)
    return ["--output=json" if each == "--json" else each for each in args[:end]] + args[end:]


def _read_texts(self: Any, ctx: Any, args: list[str]) -> list[str] | None:
    """Take the values as they are and return what is left; None if Typer has to read them."""
    parser = self.make_parser(ctx)
    given, rest, _ = parser.parse_args(args=list(args))
    read = [(each, *each.consume_value(ctx, given)) for each in self.get_params(ctx)]
    if not ctx.resilient_parsing and any(_needs_typer(each, value) for each, value, _ in read):
        return None
    for each, value, source in read:
        ctx.set_parameter_source(each.name, source)
        if each.expose_value:
            ctx.params[each.name] = value
    ctx.args = rest
    ctx._opt_prefixes.update(parser._opt_prefixes)
    return rest  # type: ignore[no-any-return]


def _needs_typer(parameter: Any, value: Any) -> bool:
    if parameter.value_is_missing(value):
        return bool(parameter.required)
    if parameter.callback is not None:
        return bool(value)
    is_text = parameter.type_descriptor.annotation in (str, list[str])
    return not (is_text or isinstance(value, bool))
