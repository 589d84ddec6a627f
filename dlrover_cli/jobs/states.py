"""The states of a run, for this package."""

from dlrover_cli.contracts.run_states import ENDED, IllegalTransition, RunState

__all__ = ["ENDED", "IllegalTransition", "RunState"]
