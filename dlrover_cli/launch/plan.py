"""What a run would do, without doing it: settings, plugins that load, each rank's start."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import Source
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.script import check_script, entry_point_of, plugin_roots
from dlrover_cli.launch.torchrun import torchrun_arguments
from dlrover_cli.telemetry.events import record_nothing
from dlrover_cli.telemetry.run_dir import state_directory

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
    check_script(settings, os.environ)
    from dlrover_cli.launch.compose import check_event_log_handler
    from dlrover_cli.launch.from_settings import config_of

    notes: list[str] = []
    config = config_of(settings, state_directory(os.environ) / "runs", notes.append)
    check_event_log_handler(config.event_log_handler)
    return Plan(
        settings=tuple(
            PlannedSetting(
                setting.name, getattr(settings, setting.name), settings.source_of(setting.name)
            )
            for setting in SETTINGS
        ),
        ranks=tuple(_ranks(settings, config)),
        plugins=tuple(_plugins(settings, config)),
        torchrun=("torchrun", *torchrun_arguments(settings)),
        notes=(*notes, *_notes(settings, config)),
    )


def _ranks(settings: LaunchSettings, config: Any) -> Iterator[PlannedRank]:
    from dlrover_cli.agent.environment import local_rank_environment

    entrypoint, args = entry_point_of(settings, os.environ)
    program = (
        entrypoint
        if isinstance(entrypoint, str)
        else f"{entrypoint.__module__}:{entrypoint.__name__}"
    )
    nodes = config.max_nodes if config.min_nodes == config.max_nodes else None
    world = _LATER if nodes is None else str(nodes * config.nproc_per_node)
    first = _first_rank(settings, config)
    for local_rank in range(config.nproc_per_node):
        rank = _LATER if first is None else str(first + local_rank)
        env = {
            "RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
            "GROUP_RANK": _LATER if first is None else str(first // config.nproc_per_node),
            "GROUP_WORLD_SIZE": _LATER if nodes is None else str(nodes),
            "ROLE_NAME": config.role,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world,
            "MASTER_ADDR": _LATER,
            "MASTER_PORT": _LATER,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
            "TORCHELASTIC_RUN_ID": config.run_id or "(a new id)",
            "DLROVER_ATTEMPT": "0",
        }
        env |= local_rank_environment(os.environ, local_rank, virtual=settings.virtual_local_rank)
        if "OMP_NUM_THREADS" not in os.environ and config.nproc_per_node > 1:
            env["OMP_NUM_THREADS"] = "1"
        if config.rdzv_backend == "static" and config.rdzv_handler is None:
            env["MASTER_ADDR"], _, env["MASTER_PORT"] = config.rdzv_endpoint.rpartition(":")
        yield PlannedRank(local_rank, (program, *map(str, args)), env)


def _first_rank(settings: LaunchSettings, config: Any) -> int | None:
    if config.is_local:
        return 0
    if config.rdzv_backend == "static" and config.rdzv_handler is None:
        return int(settings.node_rank) * int(config.nproc_per_node)
    return None


def _plugins(settings: LaunchSettings, config: Any) -> Iterator[PlannedPlugin]:
    from dlrover_cli.launch.compose import load_plugins, make_handler
    from dlrover_cli.plugins.reference import loaded_from

    roots = plugin_roots(settings)
    loaded = load_plugins(config, roots)
    if config.rdzv_handler is not None:
        handler = make_handler(config, roots, lambda line: None)
        yield PlannedPlugin("rendezvous handler", config.rdzv_handler, loaded_from(type(handler)))
    for named in loaded.metrics:
        yield PlannedPlugin("metrics handler", named.reference, loaded_from(type(named.handler)))
    advisers = Advisers(settings, roots, record_nothing, None)
    try:
        if advisers.extension is not None:
            yield PlannedPlugin(
                "failover extension",
                config.dynamic_failover_extension,
                advisers.extension.ready().file,
            )
    finally:
        advisers.chain.close()


def _notes(settings: LaunchSettings, config: Any) -> Iterator[str]:
    if config.is_local:
        yield "one node on its own: no rendezvous service, a new store on a free port per attempt"
    if settings.log_dir is None and settings.logs_specs is None:
        runs = state_directory(os.environ) / "runs"
        yield f"logs, events and the result of the run go into a new directory under {runs}"
    elif settings.log_dir is not None:
        yield f"logs go into a new directory under {Path(settings.log_dir).absolute()}"
