"""The seam for a check of the nodes between a rendezvous and the start of the workers."""

from dataclasses import dataclass
from typing import Protocol

from torch.distributed.elastic.agent.server.api import WorkerSpec

from dlrover_cli.agent.loop import Loop
from dlrover_cli.agent.rounds import Round
from dlrover_cli.failover.decide import Counters
from dlrover_cli.workers.api import WorkerStarter
from dlrover_cli.workers.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a check may use of the agent, whose thread it runs in."""

    spec: WorkerSpec
    inbox: Inbox
    loop: Loop
    starter: WorkerStarter


class NodeCheck(Protocol):
    """Looks at the nodes of a round before workers start on them."""

    def wish(self, counters: Counters) -> int:
        """The level at which this node wants the next round to be checked; 0 for not at all."""
        ...

    def passes(self, round_: Round, agent: Surroundings) -> bool:
        """Check the round at its level. False if those that are left have to meet again.

        Raises NodeUnfit if this node is not to take part. Nothing that was started is left behind.
        """
        ...


class NoCheck:
    """Every node is taken as it is."""

    def wish(self, counters: Counters) -> int:
        return 0

    def passes(self, round_: Round, agent: Surroundings) -> bool:
        return True
