"""`--platform=slurm`: outside of a Slurm job submit one and follow it; inside, be its manager."""

import os
from collections.abc import Sequence

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import UsageError
from dlrover_cli.platforms.slurm.allocation import Allocation, find_allocation, find_step
from dlrover_cli.platforms.slurm.commands import require_slurm
from dlrover_cli.platforms.slurm.submitting import batch_for, example_run


def launch(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises ManagedJobFailed, or what keeps it from starting."""
    require_slurm(os.environ)
    allocation = _allocation()
    if allocation is None:
        from dlrover_cli.platforms.slurm.following import submit_and_follow

        submit_and_follow(settings, argv)
        return
    from dlrover_cli.platforms.slurm.managing import manage

    manage(settings, argv, allocation)


def plan(settings: LaunchSettings, argv: Sequence[str]) -> str:
    """The script that sbatch would get; what it may not ask for is refused here too."""
    script = batch_for(settings, example_run(os.environ), os.getcwd()).script()
    allocation = _allocation()
    if allocation is None:
        return script
    return (
        f"In the allocation of Slurm job {allocation.job_id}: one step per agent, "
        f"--nnodes={settings.nnodes}; nothing is submitted.\n"
    )


def _allocation() -> Allocation | None:
    step = find_step(os.environ)
    if step is not None and step.tasks > 1:
        raise UsageError(
            f"--platform=slurm was started {step.tasks} times, by srun in a Slurm job",
            hint="leave out srun: dlrover-run starts the steps by itself; or leave out --platform",
        )
    return find_allocation(os.environ)
