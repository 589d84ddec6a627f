"""The Slurm platform: a job of its own, or the allocation at hand, through Slurm's own commands."""
