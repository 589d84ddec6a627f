"""What a signal means to the manager of a Slurm job: a limit, a requeue, or that it has to end."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.manager.cluster import ClusterLost, Post
from dlrover_cli.platforms.slurm.allocation import Allocation
from dlrover_cli.platforms.slurm.batch import WARNING_SIGNAL
from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError
from dlrover_cli.platforms.slurm.facts import JobFacts

WARNING = signal.Signals[f"SIG{WARNING_SIGNAL}"]
_SECONDS = 4.0


def meaning_of(signum: signal.Signals, job: JobFacts | None, restarts: int) -> ClusterLost:
    """Pure: the signal, what Slurm says of the job now, and how often it was restarted before."""
    if job is not None and job.restarts > restarts:
        reason = "Slurm puts the job back into its queue"
        return ClusterLost(reason, from_signal(signum), signum, goes_on=True)
    if job is not None and (job.state == "PREEMPTED" or job.is_preempted):
        return ClusterLost("the Slurm job is preempted", ExitCode.PREEMPTED)
    if signum == WARNING:
        return time_limit_is_near(job)
    if job is not None and job.state in ("TIMEOUT", "DEADLINE"):
        return ClusterLost("the Slurm job is at its time limit", ExitCode.PREEMPTED)
    reason = f"the launcher received {signum.name}"
    if job is not None and job.state == "CANCELLED":
        reason = "the Slurm job was cancelled"
    return ClusterLost(reason, from_signal(signum), signum)


def time_limit_is_near(job: JobFacts | None) -> ClusterLost:
    until = f": it ends at {job.end_time}" if job is not None and job.end_time else ""
    return ClusterLost(f"the time limit of the Slurm job is near{until}", ExitCode.PREEMPTED)


@dataclass(frozen=True, slots=True)
class Explainer:
    """Asks Slurm, in a thread, and posts what it means; the manager's loop goes on meanwhile."""

    slurm: Slurm
    allocation: Allocation
    run: Callable[[Callable[[], None]], None] = lambda work: threading.Thread(
        target=work, name="slurm-signal", daemon=True
    ).start()

    def __call__(self, signum: signal.Signals, post: Post) -> None:
        def ask() -> None:
            job: JobFacts | None = None
            try:
                job = self.slurm.job(self.allocation.job_id, deadline=_SECONDS)
            except SlurmError:
                pass  # it says no more than the signal does
            finally:
                post(meaning_of(signum, job, self.allocation.restarts))

        self.run(ask)
