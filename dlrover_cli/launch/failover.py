"""What a configuration says about failures, as the parts that the agent asks."""

from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.agent.terms import Terms
from dlrover_cli.failover.decide import Limits
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.faults import hosts_port

_DECISION_MARGIN = 30.0
_A_PERSONS_TIME = 7 * 24 * 3600.0  # who is asked on Friday may answer on Monday


def limits_of(config: LaunchConfig) -> Limits:
    """How often each scope may be retried."""
    return Limits(config.max_restarts, config.max_node_relaunches, config.max_job_restarts)


def terms_of(config: LaunchConfig) -> Terms:
    """What decides on a failure, and therefore has to be the same on every node."""
    values: dict[str, object] = {
        "--max-restarts": config.max_restarts,
        "--max_node_relaunches": config.max_node_relaunches,
        "--max_job_restarts": config.max_job_restarts,
        "--restart_budget_reset": config.restart_budget_reset,
        "--hang_timeout": config.hang_timeout,
        "--dynamic_failover_extension": config.dynamic_failover_extension,
        "--failover_rules": config.failover_rules,
    }
    return {option: "" if value is None else f"{value}" for option, value in values.items()}


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
