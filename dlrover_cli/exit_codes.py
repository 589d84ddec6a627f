"""The launcher's exit codes: one closed set, so that a shell script can `case $?` on them.

A worker's own exit code passes through, except that a worker's 2 or 80-85 becomes 1: those numbers
always mean what this table says. The result file carries the worker's true code.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the launcher exits with when it is not a worker's own code or 128 + signal."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    RENDEZVOUS = 80
    REPLACE_NODE = 81
    ABORTED = 82
    BUDGET_SPENT = 83
    HANG = 84
    PREEMPTED = 85


_RESERVED = frozenset({ExitCode.USAGE, *range(ExitCode.RENDEZVOUS, ExitCode.PREEMPTED + 1)})


def from_worker(status: int) -> int:
    """Map a worker's status (negative for death by signal) to the launcher's exit code."""
    if status < 0:
        return from_signal(-status)
    if status in _RESERVED:
        return ExitCode.FAILURE
    return status


def from_signal(signum: int) -> int:
    """128 + n, as shells report a process that died of signal n."""
    return 128 + signum
