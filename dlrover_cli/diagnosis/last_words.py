"""What the worker that failed first had on its stderr in the end."""

import re

from dlrover_cli.contracts import AgentFailureInfo

HEADING = "the end of its stderr:"
"""Stands before those lines in a failure's log content; only lines about other ranks follow."""

_ANOTHER_RANK = re.compile(r"rank \d+ (?:exited with code|was killed by|does not move)")


def last_words(failure: AgentFailureInfo) -> tuple[str, ...]:
    """The lines, without those about other ranks."""
    _, found, rest = failure.log_content.partition(f"{HEADING}\n")
    if not found:
        return ()
    lines = []
    for line in rest.splitlines():
        if _ANOTHER_RANK.match(line):
            break
        lines.append(line)
    return tuple(lines)
