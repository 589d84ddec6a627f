"""From what the user typed to what the agent is built from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, Std
from torch.distributed.run import determine_local_world_size

from dlrover_cli.agent.logs import RunLogsSpecs
from dlrover_cli.config.derive import (
    parse_key_values,
    parse_local_ranks_filter,
    parse_nnodes,
    parse_nproc_per_node,
    parse_rdzv_conf,
    parse_std,
)
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.plugins.entry_points import LOGS_SPECS_GROUP, load_entry_point

_STATIC_PORT = 29500


def config_of(settings: LaunchSettings, run_logs: Path, say: Callable[[str], None]) -> LaunchConfig:
    """The configuration of one run; ``run_logs`` is where logs go unless told otherwise."""
    min_nodes, max_nodes = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    conf: dict[str, object] = dict(
        parse_rdzv_conf(settings.rdzv_conf, settings.origin("rdzv_conf"))
    )
    local = is_local(settings, max_nodes)
    backend, endpoint = settings.rdzv_backend, settings.rdzv_endpoint
    if local:
        backend, endpoint = "dlrover", ""
    elif backend == "static":
        conf["rank"] = settings.node_rank
        port = _STATIC_PORT if settings.master_port is None else settings.master_port
        endpoint = endpoint or f"{settings.master_addr}:{port}"
    return LaunchConfig(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nproc_per_node=local_world_size(settings, say),
        logs_specs=_logs_specs(settings, run_logs),
        run_id="" if local and settings.rdzv_id == "none" else settings.rdzv_id,
        role=settings.role,
        rdzv_endpoint=endpoint,
        rdzv_backend=backend,
        rdzv_configs=conf,
        max_restarts=settings.max_restarts,
        monitor_interval=settings.monitor_interval,
        start_method=settings.start_method,
        log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=settings.local_addr,
        event_log_handler=settings.event_log_handler,
        numa_options=_numa_options(settings),
        signals_to_handle=settings.signals_to_handle,
        duplicate_stdout_filters=list(settings.duplicate_stdout_filters),
        duplicate_stderr_filters=list(settings.duplicate_stderr_filters),
        virtual_local_rank=settings.virtual_local_rank,
        shutdown_timeout=settings.shutdown_timeout,
        rdzv_handler=settings.rdzv_handler,
        metrics_handlers=settings.metrics_handler,
        metrics_settings=parse_key_values(settings.metrics_cfg, settings.origin("metrics_cfg")),
        dynamic_failover_extension=settings.dynamic_failover_extension,
        exit_barrier_timeout=settings.exit_barrier_timeout,
        failover_rules=settings.failover_rules,
        failover_table=settings.failover_table,
        failover_timeout=settings.failover_timeout,
        failover_on_error=settings.failover_on_error,
        max_node_relaunches=settings.max_node_relaunches,
        max_job_restarts=settings.max_job_restarts,
        restart_budget_reset=settings.restart_budget_reset,
        hang_timeout=settings.hang_timeout,
        hang_start_grace=settings.hang_start_grace,
        interactive=settings.interactive,
    )


def is_local(settings: LaunchSettings, max_nodes: int) -> bool:
    """Whether torchrun would choose a free port on this node by itself."""
    if settings.rdzv_handler is not None:
        return False
    if settings.standalone:
        return True
    unaddressed = settings.rdzv_endpoint == "" and settings.master_port is None
    return max_nodes == 1 and settings.rdzv_backend == "static" and unaddressed


def local_world_size(settings: LaunchSettings, say: Callable[[str], None]) -> int:
    """How many workers this node runs; words such as ``gpu`` are counted by torch."""
    count = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
    try:
        workers = int(determine_local_world_size(str(count)))
    except ValueError as error:
        raise ConfigError(
            f"--nproc-per-node={count}: {str(error).rstrip('.')}",
            setting="nproc_per_node",
            hint="give a number, or 'auto' for what this node has",
        ) from error
    _warn_about_devices(workers, say)
    return workers


def _warn_about_devices(workers: int, say: Callable[[str], None]) -> None:
    import torch

    devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if 0 < devices < workers:
        say(f"{workers} workers share {devices} devices; lower --nproc-per-node for one each")


def _logs_specs(settings: LaunchSettings, run_logs: Path) -> LogsSpecs:
    redirects = _std(settings.redirects, settings, "redirects")
    tee = _std(settings.tee, settings, "tee")
    shown = parse_local_ranks_filter(
        settings.local_ranks_filter, settings.origin("local_ranks_filter")
    )
    ranks = None if shown is None else set(shown)
    if settings.logs_specs is not None:
        chosen = load_entry_point(
            LOGS_SPECS_GROUP, settings.logs_specs, option="--logs-specs", base=LogsSpecs
        )
        return _make_logs(chosen, settings.log_dir, redirects, tee, ranks)
    if settings.log_dir is None:
        return RunLogsSpecs(str(run_logs), redirects, tee, ranks)
    return _make_logs(DefaultLogsSpecs, settings.log_dir, redirects, tee, ranks)


def _make_logs(
    chosen: object,
    log_dir: str | None,
    redirects: Std | dict[int, Std],
    tee: Std | dict[int, Std],
    ranks: set[int] | None,
) -> LogsSpecs:
    try:
        made: LogsSpecs = chosen(  # type: ignore[operator]
            log_dir=log_dir, redirects=redirects, tee=tee, local_ranks_filter=ranks
        )
        if log_dir is not None and log_dir != os.devnull and not os.access(log_dir, os.W_OK):
            raise PermissionError(13, "permission denied", log_dir)
    except OSError as error:
        raise ConfigError(
            f"--log-dir {log_dir}: {error.strerror or error}",
            setting="log_dir",
            hint="choose a directory that you can write to",
        ) from error
    return made


def _std(text: str, settings: LaunchSettings, name: str) -> Std | dict[int, Std]:
    value = parse_std(text, settings.origin(name))
    if isinstance(value, int):
        return Std(value)
    return {rank: Std(streams) for rank, streams in value.items()}


def _numa_options(settings: LaunchSettings) -> Any:
    if settings.numa_binding is None:
        return None
    from torch.numa.binding import AffinityMode, NumaOptions

    return NumaOptions(affinity_mode=AffinityMode(settings.numa_binding))
