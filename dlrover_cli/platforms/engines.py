"""The engine that every platform has: the launcher of this project."""

from dlrover_cli.contracts.jobs import AbstractEngine


class TorchEngine(AbstractEngine):
    """A PyTorch script, run by launchers of this project."""

    @staticmethod
    def engine() -> str:
        return "torch"
