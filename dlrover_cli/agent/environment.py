"""The environment of a worker: torchrun's variables, and three of ours."""

import os
from collections.abc import Mapping

from torch.distributed.elastic.agent.server.api import Worker, WorkerSpec

from dlrover_cli.agent.rounds import Round
from dlrover_cli.errors import UsageError


def worker_environment(
    base: Mapping[str, str], spec: WorkerSpec, worker: Worker, round_: Round, run_id: str
) -> dict[str, str]:
    """What one worker sees: ``base`` overlaid with its ranks, sizes and counters."""
    handler = spec.rdzv_handler
    env = {
        **base,
        "RANK": str(worker.global_rank),
        "GROUP_RANK": str(round_.rank),
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_NAME": spec.role,
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "WORLD_SIZE": str(worker.world_size),
        "GROUP_WORLD_SIZE": str(round_.world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "MASTER_ADDR": round_.master_addr,
        "MASTER_PORT": str(round_.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(round_.counters.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": str(handler.use_agent_store),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "DLROVER_ATTEMPT": str(round_.counters.attempt),
        "DLROVER_GENERATION": str(round_.counters.generation),
    }
    if run_id:
        env["DLROVER_RUN_ID"] = run_id
    env.update(local_rank_environment(base, worker.local_rank, virtual=_is_virtual(spec)))
    return env


def local_rank_environment(
    base: Mapping[str, str], local_rank: int, *, virtual: bool
) -> dict[str, str]:
    """LOCAL_RANK, or with virtual local ranks rank 0 and one visible device for everybody."""
    if not virtual:
        return {"LOCAL_RANK": str(local_rank)}
    devices = base.get("CUDA_VISIBLE_DEVICES")
    if devices is None:
        return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": str(local_rank)}
    visible = devices.split(",")
    if local_rank >= len(visible):
        raise UsageError(
            f"--virtual-local-rank needs a device for local rank {local_rank}, "
            f"and CUDA_VISIBLE_DEVICES={devices} names {len(visible)}",
            hint="lower --nproc-per-node or make more devices visible",
        )
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": visible[local_rank].strip()}


def _is_virtual(spec: WorkerSpec) -> bool:
    return bool(getattr(spec, "virtual_local_rank", False))


def base_environment() -> dict[str, str]:
    """The agent's own environment, which every worker inherits."""
    return dict(os.environ)
