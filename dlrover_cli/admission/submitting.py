"""What an extender file means for jobs that are submitted with it, checked before any starts."""

from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.admission.snapshot import DEFAULT_QUEUE
from dlrover_cli.config.derive import names_nodes
from dlrover_cli.contracts.jobs import BaseJobConfig
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.reading import read_extender_file
from dlrover_cli.scheduling.settings import SchedulingConfig

_PLACES_BY_ITSELF = {
    "kubernetes": "let a scheduler of the cluster ask the extender, as Volcano does",
    "slurm": "use Slurm's own partitions and priorities; or name nodes for the service to choose "
    "from, in slurm_arg: [nodelist=…]",
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

    def admit(self, config: BaseJobConfig, place: str) -> bool:
        """Jobs on this machine wait in the queues; elsewhere a job's launcher gets the file."""
        if _asks_by_itself(config):
            self._hand_on(config, place)
            return False
        self._check(config, place)
        return True

    def _hand_on(self, config: BaseJobConfig, place: str) -> None:
        if config.queue is not None:
            raise UsageError(
                f"{place}: the queues of {self.path.name} are for jobs on this machine, and one "
                f"on the platform {config.platform!r} waits in none",
                hint="leave queue out: the services of the file are asked when it starts there",
            )
        for name in ("extender", "extender_url"):
            if config.properties.get(name):
                raise UsageError(
                    f"{place}: --extender and the property {name!r} both name a service",
                    hint="keep one of them; a file may name several services",
                )
        config.properties["extender"] = self.file

    def _check(self, config: BaseJobConfig, place: str) -> None:
        hint = _PLACES_BY_ITSELF.get(config.platform or "")
        if hint is not None:
            raise UsageError(
                f"{place}: --extender decides where agents run, and the platform "
                f"{config.platform!r} places them by itself",
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


def _asks_by_itself(config: BaseJobConfig) -> bool:
    """Whether a launcher on the cluster holds the sessions, about nodes that it may choose from."""
    if config.platform == "slurm":
        given = config.properties.get("slurm_arg", config.properties.get("slurm-arg")) or ()
        return names_nodes([given] if isinstance(given, str) else map(str, given))
    return config.platform == "ray"
