"""A bearer token from its file, with errors that never show it."""

import re
from pathlib import Path

from dlrover_cli.errors import UsageError

_LARGEST = 1 << 16
_TOKEN = re.compile(rb"[!-~]+")


def read_token(path: Path) -> str:
    """The token. Raises UsageError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1).strip()
    except OSError as error:
        hint = "Name a file that holds the token alone."
        raise UsageError(
            f"the token file {path} cannot be read: {error.strerror}", hint=hint
        ) from None
    if len(content) > _LARGEST or _TOKEN.fullmatch(content) is None:
        raise UsageError(
            f"the token file {path} does not hold one token",
            hint="It holds one line of printable characters without spaces.",
        )
    return content.decode("ascii")
