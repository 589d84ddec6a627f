"""`--rank` of the commands that show some workers only."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dlrover_cli.config.derive import ranks_in
from dlrover_cli.errors import UsageError

RankOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rank", metavar="N", help="Only this global rank, or these: 0,8-15; may be given again."
    ),
]


def chosen_ranks(texts: Sequence[str] | None) -> tuple[int, ...]:
    """In order and once each; none means all."""
    ranks: set[int] = set()
    for text in texts or ():
        try:
            ranks |= ranks_in(text)
        except ValueError:
            raise UsageError(
                f"--rank takes numbers and ranges with commas between, not {text!r}",
                hint="ranks count from 0; write --rank 3 or --rank 0,8-15",
            ) from None
    return tuple(sorted(ranks))
