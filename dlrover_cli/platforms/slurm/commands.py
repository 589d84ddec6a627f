"""Slurm's commands, each with a deadline, and a sentence for when Slurm does not answer.

The state of a job comes from `squeue --json`. Where that cannot be had, since the release is too
old, lacks the plugin for it, or sends all jobs of a busy cluster whichever one is asked for,
`scontrol` is asked, and plain `squeue` where a site keeps that to itself.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.platforms.slurm.facts import ROW_FORMAT, JobFacts, Listing, NodeFacts, fields

DEADLINE = 20.0
_GONE = "Invalid job id"
_TOO_MANY_JOBS = 100
"""So many that were not asked for cost more than `scontrol` does."""
_WORTH_A_TRY = 1.0


class SlurmError(LaunchError):
    """A command of Slurm failed, or did not come back in time."""


class SlurmIsSilent(SlurmError):
    """A command did not come back in time: it is the controller, and not the command."""


class NoSuchJob(SlurmError):
    """Slurm does not know the job any more."""


@dataclass(slots=True)
class _Ways:
    """Which commands have turned out to be of no use here."""

    useless: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Slurm:
    """Runs Slurm's commands. Safe to use from any thread; every method may block for a while."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    _ways: _Ways = field(default_factory=_Ways, compare=False, repr=False)

    def run(self, *command: str, deadline: float = DEADLINE) -> str:
        """What the command printed. Raises SlurmError."""
        name = command[0]
        try:
            finished = subprocess.run(
                command,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=deadline,
                check=False,
                start_new_session=True,  # Ctrl-C is ours, not the command's
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmIsSilent(
                f"Slurm did not answer {name} within {deadline:g} s",
                hint="see whether the controller is up: scontrol ping",
            ) from error
        except OSError as error:
            raise _not_installed(name) from error
        if finished.returncode != 0:
            words = " ".join(finished.stderr.split()) or f"exit code {finished.returncode}"
            kind = NoSuchJob if _GONE in words else SlurmError
            raise kind(
                f"{name} failed: {words.removeprefix(f'{name}: error: ')}",
                hint="see whether the controller is up: scontrol ping",
            )
        return finished.stdout

    def job(self, job_id: str, deadline: float = DEADLINE) -> JobFacts:
        """Raises NoSuchJob for one that has ended long ago. All ways together have the deadline."""
        until = time.monotonic() + deadline
        failures: dict[str, SlurmError | UsageError] = {}
        ways: dict[str, Callable[[str, float], JobFacts]] = {
            "squeue --json": self._job_of_json,
            "scontrol": self._job_of_scontrol,
            "squeue": self._job_of_squeue,
        }
        for way, ask in ways.items():
            left = until - time.monotonic()
            if way in self._ways.useless or (failures and left < _WORTH_A_TRY):
                continue
            try:
                found = ask(job_id, left)
            except (NoSuchJob, SlurmIsSilent):
                raise
            except (SlurmError, UsageError) as error:
                failures[way] = error
                continue
            # Another one answers where these do not: that is not the controller's fault.
            self._ways.useless.update(failures)
            return found
        raise next(iter(reversed(failures.values())))

    def _job_of_json(self, job_id: str, deadline: float) -> JobFacts:
        asked = ("squeue", "--json", "--states=all", f"--jobs={job_id}")
        listing = Listing.read(self.run(*asked, deadline=deadline))
        if listing.problem:
            raise SlurmError(f"squeue --json failed: {listing.problem}")
        if len(listing.jobs) > _TOO_MANY_JOBS:
            self._ways.useless.add("squeue --json")
        if job_id not in listing.jobs:
            return self._job_of_scontrol(job_id, deadline)  # which says so for certain
        try:
            return JobFacts.of_json(listing.jobs[job_id])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SlurmError("squeue --json failed: its job has no state") from error

    def _job_of_scontrol(self, job_id: str, deadline: float) -> JobFacts:
        command = ("scontrol", "show", "job", "--oneliner", job_id)
        return JobFacts.read(self.run(*command, deadline=deadline))

    def _job_of_squeue(self, job_id: str, deadline: float) -> JobFacts:
        command = ("squeue", "--noheader", "--states=all", f"--jobs={job_id}")
        printed = self.run(*command, f"--Format={ROW_FORMAT}", deadline=deadline)
        if not printed.strip():
            raise NoSuchJob(f"squeue failed: {_GONE} {job_id}")
        return JobFacts.of_row(printed.partition("\n")[0])

    def nodes(self, names: str) -> list[NodeFacts]:
        """Those of a list in Slurm's notation, such as `n[1-3]`."""
        if not names:
            return []
        lines = self.run("scontrol", "show", "node", "--oneliner", names).splitlines()
        return [NodeFacts.of(found) for line in lines if "NodeName" in (found := fields(line))]

    def config(self) -> dict[str, str]:
        """How the cluster is set up."""
        lines = self.run("scontrol", "show", "config").splitlines()
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def ended(self, job_id: str) -> JobFacts | None:
        """What the accounting knows of a job; None where there is none."""
        try:
            text = self.run(
                *("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}"),
                "--format=State,ExitCode",
            )
        except (SlurmError, UsageError):
            return None
        for line in text.splitlines():
            state, _, code = line.partition("|")
            return JobFacts.of({"JobState": state, "ExitCode": code})
        return None


def find_job(slurm: Slurm, job_id: str) -> JobFacts | None:
    """None if neither Slurm nor its accounting knows it any more. Raises SlurmError."""
    try:
        return slurm.job(job_id)
    except NoSuchJob:
        return slurm.ended(job_id)


def require_slurm(environ: Mapping[str, str]) -> None:
    """Complain where there is no Slurm, before anything else is done."""
    for name in ("sbatch", "srun", "scontrol", "scancel"):
        if shutil.which(name, path=environ.get("PATH")) is None:
            raise _not_installed(name)


def _not_installed(name: str) -> UsageError:
    return UsageError(
        f"--platform=slurm needs Slurm's commands, and there is no {name} in PATH",
        hint="run it on a login node of the cluster, or load its module",
    )
