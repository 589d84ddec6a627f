"""Jobs and nodes as Slurm's commands tell of them, each command in words of its own. Pure."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FIELD = re.compile(r"(?:^| )([A-Za-z][A-Za-z/:]*)=")
_GRES = re.compile(r"(\w+)(?::[A-Za-z_][^:,(]*)?:([0-9]+)(?=[,(]|$)")
_TIME = "%Y-%m-%dT%H:%M:%S"
_COLUMNS = {
    "State": 40,
    "Reason": 60,
    "exit_code": 12,
    "RestartCnt": 12,
    "EndTime": 24,
    "PreemptTime": 24,
    "BatchHost": 256,
    "NodeList": 4096,
}
_AS_SCONTROL = ("Reason", "EndTime", "PreemptTime", "BatchHost", "NodeList")
ROW_FORMAT = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
"""What `squeue --Format` is asked for, so that `JobFacts.of_row` can read it."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job, whoever has told of it."""

    state: str
    """Such as PENDING, RUNNING, COMPLETING, COMPLETED, CANCELLED, TIMEOUT, PREEMPTED."""
    reason: str = ""
    """Why it waits."""
    restarts: int = 0
    exit_code: int = 0
    node_list: str = ""
    end_time: str = ""
    is_preempted: bool = False
    batch_host: str = ""
    """The node that runs the batch script, or did, should it be gone."""

    @classmethod
    def of(cls, found: Mapping[str, str]) -> "JobFacts":
        """The names are those of `scontrol show job`."""
        code, _, signum = found.get("ExitCode", "0:0").partition(":")
        return cls(
            state=found.get("JobState", "UNKNOWN").split()[0],
            reason=_text(found.get("Reason", "")),
            restarts=int(found.get("Restarts") or 0),
            exit_code=_exit_code(int(code or 0), int(signum or 0)),
            node_list=_text(found.get("NodeList", "")),
            end_time=_text(found.get("EndTime", "")),
            is_preempted=_text(found.get("PreemptTime", "")) != "",
            batch_host=_text(found.get("BatchHost", "")),
        )

    @classmethod
    def read(cls, text: str) -> "JobFacts":
        """What `scontrol show job --oneliner` printed."""
        return cls.of(fields(text.partition("\n")[0]))

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> "JobFacts":
        """An element of `jobs` in what `squeue --json` printed, by any release that has it."""
        ends = _whole(row.get("end_time"))
        return cls(
            state=_leading_state(row["job_state"]),
            reason=_text(str(row.get("state_reason") or "")),
            restarts=_whole(row.get("restart_cnt")),
            exit_code=_code_of_json(row.get("exit_code")),
            node_list=str(row.get("nodes") or ""),
            end_time=time.strftime(_TIME, time.localtime(ends)) if ends else "",
            is_preempted=_whole(row.get("preempt_time")) > 0,
            batch_host=str(row.get("batch_host") or ""),
        )

    @classmethod
    def of_row(cls, line: str) -> "JobFacts":
        """What `squeue --Format` printed for ROW_FORMAT."""
        values: dict[str, str] = {}
        for name, width in _COLUMNS.items():
            values[name], line = line[:width].strip(), line[width:]
        status = int(values["exit_code"] or 0)
        return cls.of(
            {
                "JobState": values["State"],
                "ExitCode": f"{status >> 8}:{status & 0x7F}",
                "Restarts": values["RestartCnt"],
                **{name: values[name] for name in _AS_SCONTROL},
            }
        )

    def seconds_left(self, now: float) -> float | None:
        """Until the time limit; None if there is none."""
        try:
            return time.mktime(time.strptime(self.end_time, _TIME)) - now
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
    gres: Mapping[str, float] = field(default_factory=dict)
    """What else it has, such as `gpu`: how many of each, whatever their type."""

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
            gres_of(found.get("Gres", "")),
        )

    @property
    def is_gone(self) -> bool:
        """Whether Slurm has given it up, and all that runs there."""
        return bool(_states(self.state) & _GONE_STATES)

    @property
    def takes_steps(self) -> bool:
        """Whether something may be started there now."""
        return not self.is_gone and "*" not in self.state and not _states(self.state) & _CLOSED


@dataclass(frozen=True, slots=True)
class Listing:
    """What `squeue --json` printed, as far as it goes."""

    jobs: Mapping[str, Mapping[str, Any]]
    problem: str = ""
    """Why it says nothing; Slurm ends it well even if the controller is out of reach."""

    @classmethod
    def read(cls, text: str) -> "Listing":
        try:
            document = json.loads(text)
            rows = {str(_whole(row["job_id"])): row for row in document["jobs"]}
            errors = [str(each.get("description") or each) for each in document.get("errors") or ()]
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls({}, "it did not print the jobs as JSON")
        return cls(rows, "; ".join(errors))


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


def _exit_code(code: int, signum: int) -> int:
    return 128 + signum if signum else code


def _code_of_json(value: Any) -> int:
    """A wait status until 22.05; since then the parts of it, by name."""
    if not isinstance(value, Mapping):
        status = _whole(value)
        return _exit_code(status >> 8, status & 0x7F)
    signal = value.get("signal") or {}
    number = _whole(signal.get("id", signal.get("signal_id")))
    return _exit_code(_whole(value.get("return_code")), number)


def _leading_state(value: Any) -> str:
    """Newer releases list the state and what is added to it; one counts, as for `scontrol`."""
    states = [value] if isinstance(value, str) else [str(each) for each in value]
    added = [each for each in _ADDED_STATES if each in states]
    return (added or states or ["UNKNOWN"])[0]


def _whole(value: Any) -> int:
    """A number, or `{"set": …, "infinite": …, "number": …}`; 0 for one that is not set."""
    if isinstance(value, Mapping):
        is_finite = value.get("set", True) and not value.get("infinite", False)
        value = value.get("number") if is_finite else 0
    return value if isinstance(value, int) else 0


def _states(text: str) -> set[str]:
    return {part.strip("*~#!%$@^-") for part in text.split("+")}


def _text(value: str) -> str:
    return "" if value in ("None", "(null)", "N/A", "n/a", "Unknown") else value


def gres_of(text: str) -> dict[str, float]:
    """`gpu:a100:4(S:0-1),gpu:8,fpga:1` → how many of each; `(null)` is nothing."""
    found: dict[str, float] = {}
    for name, count in _GRES.findall(text):
        found[name] = found.get(name, 0.0) + float(count)
    return found


def _number(text: str) -> float:
    match = re.match(r"[0-9.]+", text)
    return float(match[0]) if match else 0.0


_ADDED_STATES = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED"),
    *("REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING"),
)
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
