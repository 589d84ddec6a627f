"""The exit code of a job whose manager did not come to write one down, by what Slurm says. Pure."""

import signal

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.platforms.slurm.facts import JobFacts


def exit_code_of_end(job: JobFacts | None) -> int:
    """None: nobody knows the job any more."""
    match job:
        case JobFacts(state="TIMEOUT" | "DEADLINE" | "PREEMPTED"):
            return ExitCode.PREEMPTED
        case JobFacts(state="CANCELLED"):
            return from_signal(signal.SIGTERM)
        case JobFacts(state="OUT_OF_MEMORY"):
            return from_signal(signal.SIGKILL)
        case JobFacts(exit_code=code) if code:
            return code
        case _:
            return ExitCode.FAILURE
