"""The limits of the control group that this process is in, in both versions of the interface."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from dlrover_cli.doctor.machine import Machine

_NO_LIMIT = 1 << 60
"""Version 1 writes a number without meaning where there is no limit."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """What it may have; None where it is not limited."""

    memory_limit: int | None = None
    memory_left: int | None = None
    cpus: float | None = None
    killed: int = 0
    """Processes that were killed for memory."""


def cgroup_of(machine: Machine) -> Cgroup:
    """The tightest limits on the way from the group of this process to the root."""
    limit = left = cpus = None
    killed = 0
    for number, folder in enumerate(_folders(machine, "memory")):
        most = _number(machine, f"{folder}/memory.max", f"{folder}/memory.limit_in_bytes")
        used = _number(machine, f"{folder}/memory.current", f"{folder}/memory.usage_in_bytes")
        if most is not None:
            limit = most if limit is None else min(limit, most)
            if used is not None:
                rest = max(most - used + _reclaimable(machine, folder), 0)
                left = rest if left is None else min(left, rest)
        if number == 0:
            killed = _kills(machine, folder)
    for folder in _folders(machine, "cpu"):
        share = _cpus(machine, folder)
        if share is not None:
            cpus = share if cpus is None else min(cpus, share)
    return Cgroup(limit, left, cpus, killed)


def _folders(machine: Machine, controller: str) -> Iterator[str]:
    """Of this process's group and of those around it, the innermost first."""
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = f"/sys/fs/cgroup/{controllers}" if controllers else "/sys/fs/cgroup"
        if controllers and machine.text(f"{mount}/cgroup.procs") is None:
            mount = f"/sys/fs/cgroup/{controller}"
        # In a container the path may be that outside; the files are then at the mount itself.
        for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield f"{mount}/{str(folder).lstrip('/')}".rstrip("/")


def _number(machine: Machine, *names: str) -> int | None:
    for name in names:
        text = machine.text(name)
        if text is not None and text.isdecimal() and int(text) < _NO_LIMIT:
            return int(text)
    return None


def _reclaimable(machine: Machine, folder: str) -> int:
    """Pages of files that the kernel gives up for others; they count as used."""
    stat = _pairs(machine.text(f"{folder}/memory.stat"))
    return stat.get("inactive_file", stat.get("total_inactive_file", 0))


def _kills(machine: Machine, folder: str) -> int:
    events = _pairs(machine.text(f"{folder}/memory.events"))
    return events.get("oom_kill", 0)


def _pairs(text: str | None) -> dict[str, int]:
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _cpus(machine: Machine, folder: str) -> float | None:
    words = (machine.text(f"{folder}/cpu.max") or "").split()
    if len(words) == 2 and words[0].isdecimal():
        return int(words[0]) / int(words[1])
    quota = _number(machine, f"{folder}/cpu.cfs_quota_us")
    period = _number(machine, f"{folder}/cpu.cfs_period_us")
    return quota / period if quota and period else None
