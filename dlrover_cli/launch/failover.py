"""What a configuration says about failures, as the parts that the agent asks."""

from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.failover.decide import Limits
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.faults import hosts_port

_DECISION_MARGIN = 30.0
_A_PERSONS_TIME = 7 * 24 * 3600.0  # who is asked on Friday may answer on Monday


def limits_of(config: LaunchConfig) -> Limits:
    """How often each scope may be retried."""
    return Limits(config.max_restarts, config.max_node_relaunches, config.max_job_restarts)


def decision_timeout_of(config: LaunchConfig) -> float:
    """How long peers wait for a decision before they go on without the node that has to make it."""
    if config.interactive:
        return _A_PERSONS_TIME
    return config.failover_timeout + _DECISION_MARGIN


def hosts_control_store(config: LaunchConfig, handler: RendezvousHandler, port: int | None) -> bool:
    """Whether the nodes agree over a store that ends with this very process."""
    if isinstance(handler, ElasticRendezvous):
        return config.max_nodes > 1 and handler.hosts_store
    return config.max_nodes > 1 and port is not None and hosts_port(port)
