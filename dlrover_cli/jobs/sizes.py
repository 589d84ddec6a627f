"""How much space runs take, and when that is too much to be silent about."""

import os
from collections.abc import Mapping
from pathlib import Path

from dlrover_cli.config.byte_sizes import parse_bytes, show_bytes
from dlrover_cli.errors import ConfigError
from dlrover_cli.jobs.ledger import Ledger

LIMIT_VARIABLE = "DLROVER_STATE_LIMIT"
DEFAULT_LIMIT = "10GB"


def size_of(directory: Path) -> int:
    """The bytes of all files below; what vanishes meanwhile does not count."""
    total = 0
    for folder, _, names in os.walk(directory, onerror=lambda error: None):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total


def complaint_about_size(ledger: Ledger, environ: Mapping[str, str]) -> str | None:
    """A line for whoever submits or lists, if the runs take more than they may; else None."""
    text = environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT)
    try:
        limit = parse_bytes(text)
    except ValueError as error:
        raise ConfigError(
            f"{LIMIT_VARIABLE}: {error}", setting=LIMIT_VARIABLE, hint="write it like 10GB"
        ) from None
    total = ledger.total_size()
    if total <= limit:
        return None
    return (
        f"past runs take {show_bytes(total)}, more than {show_bytes(limit)} "
        f"({LIMIT_VARIABLE}); dlrover-job cleanup --older-than 7d removes old ones"
    )
