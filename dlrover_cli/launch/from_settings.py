"""From what the user typed to what the agent is built from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import LogsSpecs, Std
from torch.distributed.run import determine_local_world_size

from dlrover_cli.agent.logs import RunLogsSpecs
from dlrover_cli.config.derive import (
    parse_key_values,
    parse_local_ranks_filter,
    parse_nnodes,
    parse_nproc_per_node,
    parse_ranks_filter,
    parse_rdzv_conf,
    parse_std,
)
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.debugging import debugging_of
from dlrover_cli.launch.logs import AttemptLogsSpecs
from dlrover_cli.plugins.construct import construct
from dlrover_cli.plugins.entry_points import LOGS_SPECS_GROUP, resolve_entry_point
from dlrover_cli.plugins.reference import Found, check_class
from dlrover_cli.rendezvous.loading import OUR_BACKEND

_STATIC_PORT = 29500


def config_of(settings: LaunchSettings, run_logs: Path, say: Callable[[str], None]) -> LaunchConfig:
    """The configuration of one run; ``run_logs`` is where logs go unless told otherwise."""
    min_nodes, max_nodes = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    conf: dict[str, object] = dict(
        parse_rdzv_conf(settings.rdzv_conf, settings.origin("rdzv_conf"))
    )
    local = is_local(settings, max_nodes)
    if settings.exclude_straggler and not is_checked(settings):
        say(
            f"{settings.origin('exclude_straggler').subject} has no effect without a check; "
            "--precheck=1 makes one"
        )
    if settings.node_unit > 1 and settings.rdzv_backend == OUR_BACKEND and not local:
        conf.setdefault("node_unit", settings.node_unit)
    backend, endpoint = settings.rdzv_backend, settings.rdzv_endpoint
    if local:
        _check_alone(settings, min_nodes)
        backend, endpoint, max_nodes = "dlrover", "", 1
    elif backend == "static":
        conf["rank"] = _node_rank(settings, max_nodes)
        endpoint = endpoint or f"{settings.master_addr}:{_master_port(settings)}"
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
        numa_options=_numa_options(settings, say),
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
        log_prefix=settings.log_prefix,
        ranks_filter=parse_ranks_filter(settings.ranks_filter, settings.origin("ranks_filter")),
        precheck=int(settings.precheck),
        network_check=settings.network_check,
        comm_perf_test=settings.comm_perf_test,
        exclude_straggler=settings.exclude_straggler,
        precheck_timeout=settings.precheck_timeout,
        debugging=debugging_of(settings),
    )


def is_checked(settings: LaunchSettings) -> bool:
    """Whether the nodes are checked before workers start."""
    return settings.precheck != "0" or settings.network_check or settings.comm_perf_test


def is_local(settings: LaunchSettings, max_nodes: int) -> bool:
    """Whether torchrun would choose a free port on this node by itself."""
    if settings.rdzv_handler is not None:
        return False
    if settings.standalone:
        return True
    unaddressed = settings.rdzv_endpoint == "" and not settings.master_port
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


def _check_alone(settings: LaunchSettings, min_nodes: int) -> None:
    if min_nodes > 1:
        raise ConfigError(
            f"{settings.origin('standalone').subject} is for one node, and "
            f"{settings.origin('nnodes').subject} asks for {min_nodes}",
            setting="standalone",
            hint="leave one of them out; several nodes need --rdzv-backend and --rdzv-endpoint",
        )


def _node_rank(settings: LaunchSettings, max_nodes: int) -> int:
    if settings.node_rank < max_nodes or settings.rdzv_handler is not None:
        return settings.node_rank
    raise ConfigError(
        f"{settings.origin('node_rank').subject} is {settings.node_rank}, and with "
        f"--nnodes={settings.nnodes} the ranks go from 0 to {max_nodes - 1}",
        setting="node_rank",
        hint="give every node a rank of its own, counted from 0",
    )


def _master_port(settings: LaunchSettings) -> int:
    if settings.master_port is None:
        return _STATIC_PORT
    if settings.master_port > 0 or settings.rdzv_handler is not None:
        return settings.master_port
    raise ConfigError(
        f"{settings.origin('master_port').subject} is 0, and several nodes cannot guess which "
        "free port the first one would get",
        setting="master_port",
        hint="choose a port that is free on node 0, and give it to every node",
    )


def _warn_about_devices(workers: int, say: Callable[[str], None]) -> None:
    import torch

    devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if 0 < devices < workers:
        say(f"{workers} workers share {devices} devices; lower --nproc-per-node for one each")


def check_log_dir(settings: LaunchSettings) -> None:
    """Complain about a ``--log-dir`` that cannot be written. Makes nothing."""
    if settings.log_dir is None or settings.log_dir == os.devnull:
        return
    path = Path(settings.log_dir).absolute()
    # Whatever is missing will be made, so the nearest directory that is there has to allow it.
    there = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    if not os.path.isdir(there):
        raise _bad_log_dir(settings.log_dir, f"{str(there)!r} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _bad_log_dir(settings.log_dir, f"{str(there)!r} cannot be written to")


def find_logs_specs(name: str) -> Found:
    """The class behind ``--logs-specs``."""
    found = resolve_entry_point(LOGS_SPECS_GROUP, name, option="--logs-specs")
    check_class(found, LogsSpecs)
    return found


def _logs_specs(settings: LaunchSettings, run_logs: Path) -> LogsSpecs:
    check_log_dir(settings)
    shown = parse_local_ranks_filter(
        settings.local_ranks_filter, settings.origin("local_ranks_filter")
    )
    arguments: dict[str, Any] = {
        "log_dir": settings.log_dir,
        "redirects": _std(settings.redirects, settings, "redirects"),
        "tee": _std(settings.tee, settings, "tee"),
        "local_ranks_filter": None if shown is None else set(shown),
    }
    if settings.logs_specs is not None:
        chosen: LogsSpecs = construct(find_logs_specs(settings.logs_specs), kwargs=arguments)
        return chosen
    if settings.log_dir is None:
        return RunLogsSpecs(**{**arguments, "log_dir": str(run_logs)})
    try:
        return AttemptLogsSpecs(**arguments)
    except OSError as error:
        raise _bad_log_dir(settings.log_dir, error.strerror or str(error)) from error


def _bad_log_dir(log_dir: str, reason: str) -> ConfigError:
    return ConfigError(
        f"--log-dir {log_dir}: {reason}",
        setting="log_dir",
        hint="choose a directory that you can write to",
    )


def _std(text: str, settings: LaunchSettings, name: str) -> Std | dict[int, Std]:
    value = parse_std(text, settings.origin(name))
    if isinstance(value, int):
        return Std(value)
    return {rank: Std(streams) for rank, streams in value.items()}


def _numa_options(settings: LaunchSettings, say: Callable[[str], None]) -> Any:
    if settings.numa_binding is None:
        return None
    from torch import cuda
    from torch.numa.binding import AffinityMode, NumaOptions

    if not cuda.is_available():
        if settings.numa_affinity:
            say(
                f"{settings.origin('numa_affinity').subject}: workers are bound to no CPUs, since "
                "torch sees no GPU here"
            )
            return None
        raise ConfigError(
            f"{settings.origin('numa_binding').subject} binds each worker to the CPUs close to its "
            "GPU, and torch sees no GPU here",
            setting="numa_binding",
            hint="leave it out on a node without GPUs",
        )
    return NumaOptions(affinity_mode=AffinityMode(settings.numa_binding))
