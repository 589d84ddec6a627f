"""What a library user passes to ``elastic_launch``: torch's LaunchConfig and our additions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig as TorchLaunchConfig

from dlrover_cli.agent.debugging import Debugging


@dataclass
class LaunchConfig(TorchLaunchConfig):
    """torch's fields under torch's names; ``rdzv_backend`` defaults to c10d instead of etcd.

    A configuration for one node without an endpoint needs no rendezvous service: it gets a store of
    its own on a free port. Where ``logs_specs`` is left out, logs go into the run directory.
    """

    rdzv_backend: str = "c10d"
    rdzv_handler: str | None = None
    metrics_handlers: tuple[str, ...] = ()
    metrics_settings: dict[str, str] = field(default_factory=dict)
    dynamic_failover_extension: str | None = None
    exit_barrier_timeout: float = 300.0
    failover_rules: str | None = None
    failover_table: Mapping[str, object] = field(default_factory=dict)
    failover_timeout: float = 30.0
    failover_on_error: str = "normal"
    max_node_relaunches: int = 3
    max_job_restarts: int = 3
    restart_budget_reset: str = ""
    hang_timeout: float = 0.0
    hang_start_grace: float = 600.0
    interactive: bool = False
    notify: tuple[str, ...] = ()
    notify_on: str = ""
    notify_secret_file: str = ""
    log_prefix: str | None = None
    ranks_filter: frozenset[int] | None = None
    precheck: int = 0
    network_check: bool = False
    comm_perf_test: bool = False
    exclude_straggler: bool = False
    precheck_timeout: float = 120.0
    debugging: Debugging = field(default_factory=Debugging)

    def __post_init__(self) -> None:
        self.logs_in_run_directory = self.logs_specs is None
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs(log_dir=os.devnull)
        super().__post_init__()  # type: ignore[no-untyped-call]

    @property
    def is_local(self) -> bool:
        """Whether the job is one node that has nobody to meet."""
        return (
            self.max_nodes == 1
            and self.rdzv_handler is None
            and self.rdzv_backend in ("c10d", "dlrover")
            and self.rdzv_endpoint in ("", "localhost:0")
        )
