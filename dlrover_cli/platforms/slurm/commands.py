"""Slurm's commands, each with a deadline, and a sentence for when Slurm does not answer."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlrover_cli.errors import LaunchError, UsageError

DEADLINE = 20.0
_GONE = "Invalid job id"
_FIELD = re.compile(r"(?:^| )([A-Za-z][A-Za-z/:]*)=")


class SlurmError(LaunchError):
    """A command of Slurm failed, or did not come back in time."""


class NoSuchJob(SlurmError):
    """Slurm does not know the job any more."""


@dataclass(frozen=True, slots=True)
class Slurm:
    """Runs Slurm's commands. Safe to use from any thread; every method may block for a while."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

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
            raise SlurmError(
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

    def job(self, job_id: str) -> "JobFacts":
        """Raises NoSuchJob for one that has ended long ago."""
        return JobFacts.read(self.run("scontrol", "show", "job", "--oneliner", job_id))

    def nodes(self, names: str) -> list["NodeFacts"]:
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

    def ended(self, job_id: str) -> "JobFacts | None":
        """What the accounting knows of a job; None where there is none."""
        try:
            text = self.run(
                *("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}"),
                "--format=State,ExitCode,Restarts",
            )
        except SlurmError:
            return None
        for line in text.splitlines():
            state, code, restarts = [*line.split("|"), "", "", ""][:3]
            return JobFacts.of({"JobState": state, "ExitCode": code, "Restarts": restarts})
        return None


def require_slurm(environ: Mapping[str, str]) -> None:
    """Complain where there is no Slurm, before anything else is done."""
    for name in ("sbatch", "srun", "scontrol", "scancel"):
        if shutil.which(name, path=environ.get("PATH")) is None:
            raise _not_installed(name)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as `scontrol show job` tells of it."""

    state: str
    """Such as PENDING, RUNNING, COMPLETING, COMPLETED, CANCELLED, TIMEOUT, PREEMPTED."""
    reason: str = ""
    """Why it waits."""
    restarts: int = 0
    exit_code: int = 0
    node_list: str = ""
    end_time: str = ""
    is_preempted: bool = False

    @classmethod
    def of(cls, found: Mapping[str, str]) -> "JobFacts":
        code, _, signum = found.get("ExitCode", "0:0").partition(":")
        number = 128 + int(signum) if signum not in ("", "0") else int(code or 0)
        return cls(
            state=found.get("JobState", "UNKNOWN").split()[0],
            reason=_text(found.get("Reason", "")),
            restarts=int(found.get("Restarts") or 0),
            exit_code=number,
            node_list=_text(found.get("NodeList", "")),
            end_time=_text(found.get("EndTime", "")),
            is_preempted="PreemptTime" in found and _text(found["PreemptTime"]) != "",
        )

    @classmethod
    def read(cls, text: str) -> "JobFacts":
        """What `scontrol show job --oneliner` printed."""
        return cls.of(fields(text.partition("\n")[0]))

    def seconds_left(self, now: float) -> float | None:
        """Until the time limit; None if there is none."""
        try:
            return time.mktime(time.strptime(self.end_time, "%Y-%m-%dT%H:%M:%S")) - now
        except (ValueError, OverflowError):
            return None

    @property
    def is_waiting(self) -> bool:
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and it does not wait to run either."""
        return self.state in _OVER


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as `scontrol show node` tells of it."""

    name: str
    address: str
    port: int | None
    """Where its slurmd listens, if that is not the cluster's usual port."""
    state: str
    cpus: float = 0.0
    memory_mb: float = 0.0

    @classmethod
    def of(cls, found: Mapping[str, str]) -> "NodeFacts":
        port = found.get("Port", "")
        return cls(
            found["NodeName"],
            found.get("NodeAddr") or found["NodeName"],
            int(port) if port.isdecimal() else None,
            found.get("State", "UNKNOWN"),
            _number(found.get("CPUTot", "0")),
            _number(found.get("RealMemory", "0")),
        )

    @property
    def is_gone(self) -> bool:
        """Whether Slurm has given it up, and all that runs there."""
        return bool(_states(self.state) & _GONE_STATES)

    @property
    def takes_steps(self) -> bool:
        """Whether something may be started there now."""
        return not self.is_gone and "*" not in self.state and not _states(self.state) & _CLOSED


def fields(line: str) -> dict[str, str]:
    """`JobId=1 JobName=a b Reason=None` → a dict; values may hold blanks."""
    starts = list(_FIELD.finditer(line))
    ends = [match.start() for match in starts[1:]] + [len(line)]
    found: dict[str, str] = {}
    for match, end in zip(starts, ends, strict=True):
        value = line[match.end() : end].strip()
        if match[1] not in found or not _text(found[match[1]]):
            found[match[1]] = value
    return found


def explain_end(job: JobFacts | None) -> str:
    """How Slurm saw the end, in words."""
    if job is None:
        return "the Slurm job is gone, and nobody wrote down how it ended"
    return _ENDS.get(job.state, f"the Slurm job ended as {job.state}")


def _states(text: str) -> set[str]:
    return {part.strip("*~#!%$@^-") for part in text.split("+")}


def _text(value: str) -> str:
    return "" if value in ("None", "(null)", "N/A", "Unknown") else value


def _number(text: str) -> float:
    match = re.match(r"[0-9.]+", text)
    return float(match[0]) if match else 0.0


def _not_installed(name: str) -> UsageError:
    return UsageError(
        f"--platform=slurm needs Slurm's commands, and there is no {name} in PATH",
        hint="run it on a login node of the cluster, or load its module",
    )


def shown(command: Sequence[str]) -> str:
    """A command as a shell would take it."""
    import shlex

    return shlex.join(command)


_OVER = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "BOOT_FAIL", "REVOKED", "SPECIAL_EXIT"),
    }
)
_GONE_STATES = frozenset({"DOWN", "FAIL", "FAILING", "POWERED_DOWN", "POWERING_DOWN", "UNKNOWN"})
_CLOSED = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINT", "REBOOT", "REBOOT_ISSUED"})
_ENDS = {
    "CANCELLED": "the Slurm job was cancelled",
    "TIMEOUT": "the Slurm job came to its time limit",
    "DEADLINE": "the Slurm job came to its deadline",
    "PREEMPTED": "the Slurm job was preempted",
    "NODE_FAIL": "Slurm ended the job since a node failed",
    "OUT_OF_MEMORY": "the Slurm job was out of memory",
    "BOOT_FAIL": "the nodes of the Slurm job could not be booted",
}
