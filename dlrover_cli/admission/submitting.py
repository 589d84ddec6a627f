"""What an extender file means for jobs that are submitted with it, checked before any starts."""

from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.admission.snapshot import DEFAULT_QUEUE
from dlrover_cli.contracts.jobs import BaseJobConfig
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.reading import read_extender_file
from dlrover_cli.scheduling.settings import SchedulingConfig

_PLACES_BY_ITSELF = {
    "kubernetes": "let a scheduler of the cluster ask the extender, as Volcano does",
    "ray": "submit it without --extender: Ray queues what its nodes have no room for",
    "slurm": "use Slurm's own partitions and priorities",
}


@dataclass(frozen=True, slots=True)
class ExtenderAdmittance:
    """Runs start when a session of this file lets them."""

    path: Path
    config: SchedulingConfig
    runner: str = "dlrover_cli.admission.runner"

    @classmethod
    def read(cls, path: Path) -> "ExtenderAdmittance":
        """Raises UsageError that says what is wrong with the file."""
        return cls(path.absolute(), read_extender_file(path))

    @property
    def file(self) -> str:
        return str(self.path)

    def check(self, config: BaseJobConfig, place: str) -> None:
        hint = _PLACES_BY_ITSELF.get(config.platform or "")
        if hint is not None:
            raise UsageError(
                f"{place}: --extender is for jobs on this machine, and the platform "
                f"{config.platform!r} places its agents itself",
                hint=hint,
            )
        queue, queues = config.queue or DEFAULT_QUEUE, self.config.queues
        if queue in (queues or (DEFAULT_QUEUE,)):
            return
        known = ", ".join(sorted(queues)) or "none"
        if config.queue is None:
            raise UsageError(
                f"{place}: the job names no queue, and {self.path.name} has no queue 'default'",
                hint=f"give the job one of its queues: {known}",
            )
        raise UsageError(
            f"{place}: there is no queue {queue!r} in {self.path.name}",
            hint=f"its queues: {known}",
        )
