"""One exception tree; every error carries a sentence, a hint and the exit code it leads to.

DlroverError
├── UsageError (also a ValueError)      exit 2: the user can mend it by changing the input
│   ├── ConfigError                     a setting, wherever it came from
│   └── PluginError                     a module::Class or entry point that cannot be used
├── RendezvousFailed                    exit 80
├── NodeUnfit                           exit 81: this node, and not the job
└── LaunchError                         exit 1: the launcher's own surroundings failed it
"""

from dlrover_cli.exit_codes import ExitCode


class DlroverError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code: int = ExitCode.FAILURE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DlroverError, ValueError):
    """The input cannot be used as it stands; nothing was started."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """A setting has a value that cannot be used."""

    def __init__(self, message: str, *, setting: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting = setting


class PluginError(UsageError):
    """A plugin reference does not lead to something usable."""

    def __init__(
        self, message: str, *, reference: str, reason: str, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reference = reference
        self.reason = reason


class RendezvousFailed(DlroverError):
    """The nodes did not come together."""

    exit_code = ExitCode.RENDEZVOUS


class NodeUnfit(DlroverError):
    """This node is not to take part: it failed the check, or is too slow. Others may go on."""

    exit_code = ExitCode.REPLACE_NODE


class LaunchError(DlroverError):
    """Something around the launcher failed: a file system, a port, a helper process."""
