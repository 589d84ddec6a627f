"""A job whose manager's node has died: Slurm lets it run on, with nobody in it. It is put back.

With `--no-kill` Slurm takes a dead node out of the job and keeps the others, even if it was the one
that ran the batch script. The agents have ended by then, since they miss their manager. Whoever
follows the job has it requeued: the run goes on, with another manager.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError
from dlrover_cli.platforms.slurm.facts import JobFacts


@dataclass(slots=True)
class OrphanWatch:
    """Belongs to one thread, which may block."""

    slurm: Slurm
    job_id: str
    say: Callable[[str], None]
    _restarts: int = -1
    _host: str = ""
    """Where the batch script runs, with the manager in it."""
    _node_list: str = ""
    """As of the last look at its nodes."""

    def look(self, job: JobFacts) -> None:
        """Asks Slurm for more than ``job`` only if its nodes have changed. Raises SlurmError."""
        if job.state != "RUNNING" or not job.batch_host:
            return
        if job.restarts != self._restarts:
            self._restarts, self._host = job.restarts, job.batch_host
        elif job.node_list == self._node_list:
            return
        names = {node.name for node in self.slurm.nodes(job.node_list)}
        self._node_list = job.node_list
        if names and self._host not in names:
            self._put_back()

    def _put_back(self) -> None:
        lost = f"{self._host}, where the job's manager ran, is lost"
        try:
            self.slurm.run("scontrol", "requeue", self.job_id)
            self.say(f"{lost}: Slurm is told to start the job again")
        except SlurmError as error:
            self.say(f"{lost}, and the job cannot be started again: {error.message}")
            self.slurm.run("scancel", self.job_id)
