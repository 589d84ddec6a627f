"""`srun dlrover-run train.py` in a batch script: what the user leaves open, Slurm has said already.

How many nodes, which one this is, where they meet and under which name. A setting that was given in
any other way stays as it is.
"""

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import UsageError
from dlrover_cli.leash import wire
from dlrover_cli.platforms.slurm.allocation import Step, find_step
from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError

_FIRST_PORT, _PORTS = 15000, 10000
"""Below those that systems give to clients."""


def fill_from_step(
    settings: LaunchSettings,
    environ: Mapping[str, str],
    address_of: Callable[[str], str] | None = None,
) -> LaunchSettings:
    """The settings of this task of the step. Raises UsageError."""
    step = find_step(environ)
    if step is None or settings.platform != "local" or settings.standalone:
        return settings
    if wire.VARIABLE in environ or max(step.nodes, step.tasks) == 1:
        return settings  # an agent of a managed job, or alone
    if step.tasks != step.nodes and not _is_given(settings, "nnodes"):
        raise UsageError(
            f"srun has started {step.tasks} launchers on {step.nodes} nodes",
            hint="start one on each: srun --ntasks-per-node=1 dlrover-run --nproc-per-node=…",
        )
    found: dict[str, tuple[Any, str]] = {"nnodes": (str(step.nodes), "SLURM_STEP_NUM_NODES")}
    where = address_of or _address_of
    port = _FIRST_PORT + (int(step.job_id) * 31 + int(step.step_id)) % _PORTS
    if settings.rdzv_backend == "static" and _is_given(settings, "rdzv_backend"):
        found["node_rank"] = (step.node_rank, "SLURM_NODEID")
        if not _is_given(settings, "rdzv_endpoint"):
            found["master_addr"] = (where(first_node(step)), "SLURM_STEP_NODELIST")
            found["master_port"] = (port, "SLURM_JOB_ID")
    elif not _is_given(settings, "rdzv_handler") and not _is_given(settings, "master_addr"):
        found |= _meeting(settings, step, port, where)
    return _filled(settings, found)


def _meeting(
    settings: LaunchSettings, step: Step, port: int, where: Callable[[str], str]
) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {
        "rdzv_backend": ("dlrover", "SLURM_STEP_ID"),
        "rdzv_id": (f"slurm-{step.job_id}.{step.step_id}", "SLURM_JOB_ID"),
    }
    if _is_given(settings, "rdzv_endpoint"):
        return found
    found["rdzv_endpoint"] = (f"{where(first_node(step))}:{port}", "SLURM_STEP_NODELIST")
    if "is_host" not in settings.rdzv_conf:
        # Nodes may share a hostname, and by theirs they could not tell who is the first.
        conf = ",".join(filter(None, (settings.rdzv_conf, f"is_host={int(step.node_rank == 0)}")))
        found["rdzv_conf"] = (conf, "SLURM_NODEID")
    return found


def first_node(step: Step) -> str:
    """`gpu[003-005,9],x1` → `gpu003`."""
    match = re.match(r"([^\[,]+)(?:\[([^\]]+)\])?", step.node_list)
    if match is None:
        return socket.gethostname()
    numbers = match[2] or ""
    return match[1] + re.split("[-,]", numbers)[0]


def _filled(settings: LaunchSettings, found: Mapping[str, tuple[Any, str]]) -> LaunchSettings:
    new = {
        name: each
        for name, each in found.items()
        if not _is_given(settings, name) or name == "rdzv_conf"
    }
    sources = {name: Source(SourceKind.ENV, variable) for name, (_, variable) in new.items()}
    values = {name: value for name, (value, _) in new.items()}
    return replace(settings, **values, sources={**settings.sources, **sources})


def _is_given(settings: LaunchSettings, name: str) -> bool:
    return settings.source_of(name).kind is not SourceKind.DEFAULT


def _address_of(node: str) -> str:
    """By its name where that can be looked up: asking Slurm, on all nodes at once, has a cost."""
    try:
        socket.getaddrinfo(node, None)
        return node
    except OSError:
        pass
    try:
        [facts] = Slurm().nodes(node)
        return facts.address
    except (SlurmError, ValueError):
        return node
