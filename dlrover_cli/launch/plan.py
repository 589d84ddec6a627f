"""What a run would do, without doing it: settings, plugins that load, each rank's start."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_cli.config.derive import check_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import Source
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.notifying import notify_of, shown_value
from dlrover_cli.launch.script import check_script, entry_point_of, plugin_roots
from dlrover_cli.launch.torchrun import check_compat, torchrun_arguments
from dlrover_cli.launch.worker_start import plan_worker_start
from dlrover_cli.telemetry.events import record_nothing
from dlrover_cli.telemetry.run_dir import state_directory

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler

    from dlrover_cli.launch.config import LaunchConfig

_LATER = "(set by the rendezvous)"


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """A setting's value and where it came from."""

    name: str
    value: object
    source: Source


@dataclass(frozen=True, slots=True)
class PlannedRank:
    """How one worker of this node is started; only what differs from our own environment."""

    local_rank: int
    command: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedPlugin:
    """A plugin that was loaded for the plan."""

    kind: str
    reference: str
    loaded_from: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that ``--dry_run`` shows."""

    settings: tuple[PlannedSetting, ...]
    ranks: tuple[PlannedRank, ...]
    plugins: tuple[PlannedPlugin, ...]
    torchrun: tuple[str, ...]
    notes: tuple[str, ...]


def make_plan(settings: LaunchSettings) -> Plan:
    """Resolve everything that can be resolved without meeting other nodes. Starts nothing."""
    check_settings(settings)
    check_compat(settings)
    notify_of(settings)
    check_script(settings, os.environ)
    from dlrover_cli.launch.compose import check_event_log_handler
    from dlrover_cli.launch.from_settings import check_log_dir, config_of

    notes: list[str] = []
    check_log_dir(settings)
    # Logs specs would make their directories.
    without_logs = replace(settings, log_dir=None, logs_specs=None)
    config = config_of(without_logs, state_directory(os.environ) / "runs", notes.append)
    check_event_log_handler(config.event_log_handler)
    handler, plugins = _load(settings, config)
    return Plan(
        settings=tuple(
            PlannedSetting(
                setting.name,
                shown_value(settings, setting.name),
                settings.source_of(setting.name),
            )
            for setting in SETTINGS
        ),
        ranks=tuple(_ranks(settings, config, handler)),
        plugins=tuple(plugins),
        torchrun=("torchrun", *torchrun_arguments(settings)),
        notes=(*notes, *_notes(settings, config)),
    )


def _load(
    settings: LaunchSettings, config: "LaunchConfig"
) -> tuple["RendezvousHandler | None", list[PlannedPlugin]]:
    """Load every plugin as a run would; the user's rendezvous handler, if there is one."""
    from dlrover_cli.launch.compose import load_plugins
    from dlrover_cli.launch.from_settings import find_logs_specs
    from dlrover_cli.launch.rendezvous import make_handler
    from dlrover_cli.plugins.entry_points import RENDEZVOUS_GROUP, entry_point_names
    from dlrover_cli.plugins.entry_points import resolve_entry_point as resolve
    from dlrover_cli.plugins.reference import loaded_from
    from dlrover_cli.rendezvous.loading import check_rendezvous_backend

    roots = plugin_roots(settings)
    loaded = load_plugins(config, roots)
    found: list[PlannedPlugin] = []

    def note(kind: str, reference: str, plugin: object) -> None:
        found.append(PlannedPlugin(kind, reference, loaded_from(plugin)))

    handler = None
    if config.rdzv_handler is not None:
        handler = make_handler(config, roots, lambda line: None)
        note("rendezvous handler", config.rdzv_handler, type(handler))
    elif not config.is_local:
        check_rendezvous_backend(config.rdzv_backend)
        if config.rdzv_backend in entry_point_names(RENDEZVOUS_GROUP):
            backend = resolve(RENDEZVOUS_GROUP, config.rdzv_backend, option="--rdzv-backend")
            note("rendezvous backend", config.rdzv_backend, backend.value)
    if settings.logs_specs is not None:
        note("logs specs", settings.logs_specs, find_logs_specs(settings.logs_specs).value)
    for named in loaded.metrics:
        note("metrics handler", named.reference, type(named.handler))
    extension = _load_extension(settings, config, roots)
    if extension is not None:
        found.append(extension)
    return handler, found


def _load_extension(
    settings: LaunchSettings, config: "LaunchConfig", roots: tuple[Path, ...]
) -> PlannedPlugin | None:
    advisers = Advisers(settings, roots, record_nothing, None)
    try:
        if advisers.extension is None or config.dynamic_failover_extension is None:
            return None
        file = advisers.extension.ready().file
        return PlannedPlugin("failover extension", config.dynamic_failover_extension, file)
    finally:
        advisers.chain.close()


def _ranks(
    settings: LaunchSettings, config: "LaunchConfig", handler: "RendezvousHandler | None"
) -> Iterator[PlannedRank]:
    from dlrover_cli.agent.environment import local_rank_environment

    entrypoint, args = entry_point_of(settings, os.environ)
    program = (
        entrypoint
        if isinstance(entrypoint, str)
        else f"{entrypoint.__module__}:{entrypoint.__name__}"
    )
    shared = _shared_environment(settings, config, handler)
    node_rank = _node_rank(settings, config, handler)
    for local_rank in range(config.nproc_per_node):
        rank = _LATER
        if node_rank is not None:
            rank = str(node_rank * config.nproc_per_node + local_rank)
        env = {
            "RANK": rank,
            "ROLE_RANK": rank,
            "GROUP_RANK": _LATER if node_rank is None else str(node_rank),
            **shared,
            **local_rank_environment(os.environ, local_rank, virtual=settings.virtual_local_rank),
        }
        command = tuple(str(arg).replace("${local_rank}", str(local_rank)) for arg in args)
        yield PlannedRank(local_rank, (program, *command), env)


def _shared_environment(
    settings: LaunchSettings, config: "LaunchConfig", handler: "RendezvousHandler | None"
) -> dict[str, str]:
    """What every worker of this node gets, as far as it is known."""
    is_static = config.rdzv_backend == "static" and handler is None
    nodes = config.max_nodes if config.min_nodes == config.max_nodes and handler is None else None
    world = _LATER if nodes is None else str(nodes * config.nproc_per_node)
    address, port = _LATER, _LATER
    if config.is_local:
        address = config.local_addr or "localhost"
    elif is_static:
        from dlrover_cli.launch.rendezvous import split_endpoint

        address, port = map(str, split_endpoint(config.rdzv_endpoint))
    env = {
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
        "GROUP_WORLD_SIZE": _LATER if nodes is None else str(nodes),
        "ROLE_NAME": config.role,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_RUN_ID": config.run_id or "(a new id)",
        "TORCHELASTIC_USE_AGENT_STORE": str(_uses_agent_store(handler, config)),
        "TORCHELASTIC_ERROR_FILE": "(a file below the logs)",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": config.signals_to_handle,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    if "OMP_NUM_THREADS" not in os.environ and config.nproc_per_node > 1:
        env["OMP_NUM_THREADS"] = "1"
    if os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1":
        env["TORCHELASTIC_TIMER_FILE"] = os.environ.get("TORCHELASTIC_TIMER_FILE", "(a new pipe)")
    if settings.compat == "torchrun":
        return env
    env |= {"DLROVER_ATTEMPT": "0", "DLROVER_GENERATION": "0", "DLROVER_RUN_ID": "(a new id)"}
    if settings.run_path:  # workers that are functions leave no facts
        return env
    return env | {
        "DLROVER_WORKER_DIR": "(a directory of the run)",
        "DLROVER_BEAT_FILE": "(a page of shared memory)",
    }


def _node_rank(
    settings: LaunchSettings, config: "LaunchConfig", handler: "RendezvousHandler | None"
) -> int | None:
    """Which node this one is, where that is known before the nodes meet."""
    if handler is not None:
        return None
    if config.rdzv_backend == "static":
        return settings.node_rank
    return 0 if config.max_nodes == 1 else None


def _uses_agent_store(handler: "RendezvousHandler | None", config: "LaunchConfig") -> bool:
    if handler is not None:
        return bool(handler.use_agent_store)
    shares = os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"
    return shares or config.rdzv_backend != "c10d"


def _notes(settings: LaunchSettings, config: "LaunchConfig") -> Iterator[str]:
    from dlrover_cli.launch.from_settings import is_checked

    if settings.compat == "torchrun":
        yield "--compat=torchrun: torch's own launcher runs this, and keeps no run directory"
        return
    if config.is_local:
        yield "one node on its own: no rendezvous service, a new store on a free port per attempt"
    elif config.max_nodes > 1:
        yield f"ranks and sizes are for nodes that all run {config.nproc_per_node} workers"
        yield from _notes_on_the_store(config)
    if is_checked(settings):
        when = "every start of workers" if settings.network_check else "training"
        yield (
            f"the nodes are checked before {when}; a stage of it may take "
            f"{settings.precheck_timeout:g} s"
        )
    yield from _worker_start_note(settings)
    if settings.log_dir is None and settings.logs_specs is None:
        runs = state_directory(os.environ) / "runs"
        yield f"logs, events and the result of the run go into a new directory under {runs}"
    elif settings.log_dir is not None:
        yield f"logs go into a new directory under {Path(settings.log_dir).absolute()}"


def _worker_start_note(settings: LaunchSettings) -> Iterator[str]:
    start = plan_worker_start(settings, os.environ)
    if start.warm:
        yield f"workers are forked from a process that has loaded {', '.join(start.preloads)}"
    elif start.reason is not None:
        yield f"workers are started fresh: {start.reason}"
    elif not settings.run_path:
        yield "workers are started fresh"


def _notes_on_the_store(config: "LaunchConfig") -> Iterator[str]:
    """What it means that the store where the nodes meet ends with the node that hosts it."""
    is_outside = str(config.rdzv_configs.get("is_host", "")).lower() in ("0", "false")
    hosted = config.rdzv_backend in ("c10d", "dlrover", "static") and config.rdzv_handler is None
    if is_outside or not hosted or config.rdzv_configs.get("store_type") == "file":
        return
    yield (
        "the store where the nodes meet lives in one of them: without that node the job cannot go "
        "on, a NODE verdict there restarts the whole job, and a node that comes after an abort is "
        "not told; `dlrover-job rendezvous serve` hosts a store apart from the nodes"
    )
