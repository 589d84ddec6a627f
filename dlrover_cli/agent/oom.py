"""Was it the kernel that killed a worker because memory ran out?

The kernel counts its out-of-memory kills before it sends the signal: for the whole machine in
/proc/vmstat, and for the control group of the victim. The group's own count is believed where there
is one, since the machine's also counts the neighbours'.
"""

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class OomKills:
    """How many processes had been killed for memory at some moment; None where nobody counts."""

    machine: int | None
    group: int | None

    def since(self, before: "OomKills") -> bool:
        """Whether there was such a kill between ``before`` and now."""
        if self.group is not None and before.group is not None:
            return self.group > before.group
        if self.machine is not None and before.machine is not None:
            return self.machine > before.machine
        return False


def count_oom_kills(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> OomKills:
    """The counts of this moment, for the control group that this process is in."""
    return OomKills(_count_in(proc / "vmstat"), _count_of_group(proc, cgroups))


def _count_of_group(proc: Path, cgroups: Path) -> int | None:
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            files = [cgroups / "memory" / path.lstrip("/") / "memory.oom_control"]
            # In a container the path is the host's, and what is mounted is the group itself.
            files.append(cgroups / "memory" / "memory.oom_control")
        elif not controllers:
            files = [cgroups / path.lstrip("/") / "memory.events", cgroups / "memory.events"]
        else:
            continue
        for file in files:
            count = _count_in(file)
            if count is not None:
                return count
    return None


def _count_in(file: Path) -> int | None:
    for line in _read(file).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
