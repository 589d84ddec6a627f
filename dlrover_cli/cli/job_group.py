"""How a group of `dlrover-job` commands is declared: by itself it shows its help."""

import typer


def command_group(about: str) -> typer.Typer:
    """An empty group; commands are added to it with its decorator."""
    group = typer.Typer(
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
