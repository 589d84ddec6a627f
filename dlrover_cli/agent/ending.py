"""How a run ended without success."""

from dataclasses import dataclass

from dlrover_cli.agent.judge import Settlement
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.failover.decide import Action, Decision


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ended without success: the failure that decided it, and the decision."""

    settlement: Settlement
    failure: AgentFailureInfo | None
    """None if nothing failed: somebody wanted it to end."""
    alone: bool
    """Whether this was the only node of the job, with no manager to start another."""
    world_size: int = 1
    alike: tuple[int, ...] = ()
    """The ranks of this node that failed by themselves too, and not because another one did."""
    succeeded: tuple[int, ...] = ()
    """The ranks of this node that had done their work before."""

    @property
    def replaces_itself(self) -> bool:
        """A single node has nobody else who could start it again."""
        return self.alone and self.decision.action is Action.REPLACE_NODE

    @property
    def decision(self) -> Decision:
        return self.settlement.decision
