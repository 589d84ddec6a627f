"""dlrover-run: a drop-in torchrun that knows what to do when training fails."""

__version__ = "0.1.0"
__all__ = ["LaunchConfig", "__version__", "elastic_launch", "heartbeat"]

# typing has both; loading it takes longer than all else that the console scripts do at first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dlrover_cli.launch.api import elastic_launch
    from dlrover_cli.launch.config import LaunchConfig
    from dlrover_cli.workers.heartbeat import heartbeat

# Loaded on first use: `import dlrover_cli` must stay cheap for --help and for workers.
_LAZY = {
    "LaunchConfig": "dlrover_cli.launch.config",
    "elastic_launch": "dlrover_cli.launch.api",
    "heartbeat": "dlrover_cli.workers.heartbeat",
}


def __getattr__(name: str) -> "Any":
    if name in _LAZY:
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
