"""All that a plugin author imports; nothing in here needs torch.

The job model is loaded when one of its names is asked for: a launch does without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from dlrover_cli.contracts.job_registry import (
        find_job_plugin,
        register_engine,
        register_job_plugin,
        register_platform,
        registered_plugins,
    )
    from dlrover_cli.contracts.jobs import (
        AbstractEngine,
        AbstractJob,
        AbstractJobConfig,
        AbstractJobGenerator,
        AbstractJobHandler,
        AbstractJobPlugin,
        AbstractJobSubmitter,
        AbstractPlatform,
        AISubGraph,
        BaseJob,
        BaseJobConfig,
        BaseNode,
        ExecutionMode,
        JobContext,
        JobResult,
        PeriodicConfig,
        ProjectDesc,
    )
    from dlrover_cli.contracts.jsonable import Jsonable, NotJsonable

__all__ = [
    "AISubGraph",
    "AbstractEngine",
    "AbstractJob",
    "AbstractJobConfig",
    "AbstractJobGenerator",
    "AbstractJobHandler",
    "AbstractJobPlugin",
    "AbstractJobSubmitter",
    "AbstractPlatform",
    "AgentFailureInfo",
    "BaseJob",
    "BaseJobConfig",
    "BaseNode",
    "DynamicAgentFailoverExtension",
    "DynamicFailoverExtension",
    "ExecutionMode",
    "FailoverStrategy",
    "FailureInfo",
    "FailureKind",
    "JobContext",
    "JobResult",
    "Jsonable",
    "ManagerExtension",
    "NodeInfo",
    "NotJsonable",
    "PeriodicConfig",
    "ProjectDesc",
    "WorkerFailure",
    "WorkerPhase",
    "find_job_plugin",
    "register_engine",
    "register_job_plugin",
    "register_platform",
    "registered_plugins",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("jobs", "jsonable", "job_registry"):
            found = import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
