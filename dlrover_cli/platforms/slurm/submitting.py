"""Hand a job to Slurm: its script in the run directory, sbatch, and a guard over who follows it."""

import os
from collections.abc import Mapping
from pathlib import Path

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.launch import given_run
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.slurm.batch import Batch, make_batch, without_overrides
from dlrover_cli.platforms.slurm.history import MANAGER
from dlrover_cli.telemetry.run_dir import state_directory

SCRIPT = "batch.sh"
LOGS = "slurm"


def example_run(environ: Mapping[str, str]) -> GivenRun:
    """The run that would be made, with a word in the place of its id."""
    run_id = "RUN_ID"
    return GivenRun(run_id, str(state_directory(environ) / "runs" / run_id), MANAGER)


def batch_for(settings: LaunchSettings, given: GivenRun, cwd: str) -> Batch:
    """The sbatch of one run. Raises ConfigError."""
    return make_batch(
        settings,
        directory=cwd,
        log_directory=os.path.join(given.run_directory, LOGS),
        launcher=launcher_command(),
        environ={given_run.VARIABLE: given.to_json(), "DLROVER_RUN_ID": given.run_id},
    )


def write_script(batch: Batch, run_directory: Path) -> Path:
    """Put it where the job will find it, with a directory for its output."""
    (run_directory / LOGS).mkdir(mode=0o700, exist_ok=True)
    path = run_directory / SCRIPT
    path.write_text(batch.script())
    path.chmod(0o700)
    return path


def sbatch_environ(environ: Mapping[str, str], batch: Batch) -> dict[str, str]:
    """What the job inherits: no part in another run, and nothing that overrides the script."""
    inherited = {name: text for name, text in environ.items() if name != given_run.VARIABLE}
    return without_overrides(inherited, batch.options)
