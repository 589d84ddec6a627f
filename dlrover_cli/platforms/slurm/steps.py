"""One agent as a step of a Slurm job: the srun that starts it, and the node that it is on. Pure."""

from collections.abc import Mapping

from dlrover_cli.manager.cluster import Node
from dlrover_cli.platforms.slurm.facts import NodeFacts

SLURM_FAILED = 199
"""What srun exits with if it is Slurm that failed, and not the agent."""


def srun(job_id: str, node: str, name: str, *, binds: bool = False) -> list[str]:
    """The step of one agent: nothing that befalls another one ends it."""
    return [
        *("srun", f"--jobid={job_id}", f"--job-name={name}"),
        *("--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap"),
        *("--no-kill", "--kill-on-bad-exit=0", "--wait=0"),
        *("--mpi=none", "--export=ALL", "--quiet"),
        *(["--cpu-bind=none"] if binds else []),
    ]


def srun_environ(environ: Mapping[str, str], *, is_elsewhere: bool) -> dict[str, str]:
    """What srun goes by; in another job than our own, what Slurm says of ours would mislead it."""
    kept = {
        name: text
        for name, text in environ.items()
        if not is_elsewhere or not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_EXIT_ERROR": str(SLURM_FAILED)}


def node_of(facts: NodeFacts, job_id: str) -> Node:
    """All nodes of a test may share one hostname: Slurm's name of it is what counts."""
    others = {_GRES_NAMES.get(name, name): count for name, count in facts.gres.items()}
    return Node(
        facts.name,
        facts.name,
        facts.address,
        {"cpu": facts.cpus, "memory": facts.memory_mb * 2**20, **others},
        {"SLURM_JOB_ID": job_id, "SLURMD_NODENAME": facts.name},
    )


_GRES_NAMES = {"gpu": "nvidia.com/gpu"}
"""What `--resources`, and services that decide about placement, call them."""
