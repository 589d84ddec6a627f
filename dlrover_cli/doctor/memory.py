"""Memory: what is shared between processes, and what the kernel lets this one have."""

from collections.abc import Iterator

from dlrover_cli.config.byte_sizes import show_bytes
from dlrover_cli.doctor.cgroup import Cgroup, cgroup_of
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine

_MIB = 1 << 20
_SHM_LEAST = 64 * _MIB
"""What a container gets that nobody has asked for more; too little for a DataLoader or NCCL."""
_SHM_USUAL = 1024 * _MIB
_MEMORY_LEAST = 256 * _MIB
_MEMORY_USUAL = 1024 * _MIB
_SHM_FIX = (
    "in a container: docker run --shm-size=8g, or on Kubernetes an emptyDir with medium: Memory at "
    "/dev/shm; else: mount -o remount,size=8G /dev/shm"
)


def check_shared_memory(machine: Machine) -> Iterator[Finding]:
    """/dev/shm, where DataLoaders, NCCL and gloo hand over data."""
    try:
        space = machine.space(machine.root / "dev/shm")
    except OSError as error:
        yield problem(
            "/dev/shm",
            f"cannot be used: {error.strerror}",
            why="DataLoader workers and NCCL hand over data there",
            fix=_SHM_FIX,
        )
        return
    shown = f"{show_bytes(space.free)} of {show_bytes(space.total)} are free"
    if space.free <= _SHM_LEAST:
        yield problem(
            "/dev/shm",
            shown,
            why="DataLoader workers end with a bus error, and NCCL cannot start",
            fix=_SHM_FIX,
        )
    elif space.free < _SHM_USUAL:
        yield warning(
            "/dev/shm",
            shown,
            why="several DataLoader workers or GPUs need more",
            fix=_SHM_FIX,
        )
    else:
        yield ok("/dev/shm", shown)


def check_memory(machine: Machine) -> Iterator[Finding]:
    """What is left of the machine's memory and of the control group's."""
    cgroup = cgroup_of(machine)
    left = _left(machine, cgroup)
    if left is None:
        yield ok("memory", "the kernel does not tell how much is left")
        return
    shown = f"{show_bytes(left)} are left"
    if cgroup.memory_limit is not None:
        shown += f"; this control group may have {show_bytes(cgroup.memory_limit)}"
    if left < _MEMORY_USUAL:
        make = problem if left < _MEMORY_LEAST else warning
        yield make(
            "memory",
            shown,
            why="the kernel kills a worker that needs more (SIGKILL, exit code 137)",
            fix="end other processes, or ask the container or the batch system for more memory",
        )
    else:
        yield ok("memory", shown)
    if cgroup.killed:
        yield warning(
            "memory",
            f"the kernel has killed {cgroup.killed} processes of this control group for memory",
            why="the same will happen to workers that need as much",
            fix="ask for more memory, or start fewer workers",
        )


def _left(machine: Machine, cgroup: Cgroup) -> int | None:
    lines = dict(
        line.partition(":")[::2] for line in (machine.text("/proc/meminfo") or "").splitlines()
    )
    available = lines.get("MemAvailable", "").split()
    found = [int(available[0]) * 1024] if available else []
    if cgroup.memory_left is not None:
        found.append(cgroup.memory_left)
    return min(found, default=None)
