"""For tests of failover extensions: failures to try them on, and a way to ask them for real.

Installed, it is a pytest plugin too, through which DLRover's import paths work in tests.
"""

from dlrover_cli.testing.asking import ask_extension
from dlrover_cli.testing.failures import (
    exception_failure,
    exit_failure,
    hang_failure,
    signal_failure,
    start_up_failure,
)

__all__ = [
    "ask_extension",
    "exception_failure",
    "exit_failure",
    "hang_failure",
    "signal_failure",
    "start_up_failure",
]
