"""The engine that every platform has: the launcher of this project."""

from typing import Any

from dlrover_cli.contracts.jobs import AbstractEngine, BaseJobConfig


class TorchEngine(AbstractEngine):
    """A PyTorch script, run by launchers of this project."""

    @staticmethod
    def engine() -> str:
        return "torch"


def properties_of(config: BaseJobConfig) -> dict[str, Any]:
    """What is named among a job's properties; its `resources` are the launcher's setting, too."""
    named = {name: value for name, value in config.properties.items() if value is not None}
    if config.resources:
        pairs = (f"{name}={amount}" for name, amount in config.resources.items())
        named.setdefault("resources", ",".join(pairs))
    return named
