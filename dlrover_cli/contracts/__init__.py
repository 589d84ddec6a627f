"""All that a plugin author imports; nothing in here needs torch."""

from dlrover_cli.contracts.failover import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    DynamicFailoverExtension,
    FailoverStrategy,
    FailureInfo,
    FailureKind,
    WorkerFailure,
    WorkerPhase,
)
from dlrover_cli.contracts.manager import ManagerExtension, NodeInfo

__all__ = [
    "AgentFailureInfo",
    "DynamicAgentFailoverExtension",
    "DynamicFailoverExtension",
    "FailoverStrategy",
    "FailureInfo",
    "FailureKind",
    "ManagerExtension",
    "NodeInfo",
    "WorkerFailure",
    "WorkerPhase",
]
