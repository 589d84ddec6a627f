"""Where this process is: outside of Slurm, in an allocation, or a task of a step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

_SPECIAL_STEP = 0xFFFFFFF0
"""From here on, step numbers are the batch script, an interactive shell, and the like."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The Slurm job that this process is part of."""

    job_id: str
    node: str = ""
    """Slurm's name of the machine that this process is on; empty on a login node."""
    restarts: int = 0
    """How many times Slurm has started the job again."""


@dataclass(frozen=True, slots=True)
class Step:
    """The step that this process is a task of."""

    job_id: str
    step_id: str
    nodes: int
    tasks: int
    node_rank: int
    tasks_per_node: str = ""
    node_list: str = ""


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """None outside of any job."""
    job_id = environ.get("SLURM_JOB_ID", "")
    if not job_id.isdecimal():
        return None
    return Allocation(
        job_id, environ.get("SLURMD_NODENAME", ""), _number(environ, "SLURM_RESTART_COUNT", 0)
    )


def find_step(environ: Mapping[str, str]) -> Step | None:
    """None outside of a step that srun has started."""
    step_id = environ.get("SLURM_STEP_ID", "")
    job_id = environ.get("SLURM_JOB_ID", "")
    if not step_id.isdecimal() or not job_id.isdecimal() or int(step_id) >= _SPECIAL_STEP:
        return None
    return Step(
        job_id,
        step_id,
        nodes=_number(environ, "SLURM_STEP_NUM_NODES", 1),
        tasks=_number(environ, "SLURM_STEP_NUM_TASKS", 1),
        node_rank=_number(environ, "SLURM_NODEID", 0),
        tasks_per_node=environ.get("SLURM_STEP_TASKS_PER_NODE", ""),
        node_list=environ.get("SLURM_STEP_NODELIST", ""),
    )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default
