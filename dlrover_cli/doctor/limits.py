"""The limits of this shell's processes, which workers inherit."""

import resource
from collections.abc import Iterator

from dlrover_cli.doctor.finding import Finding, ok, warning
from dlrover_cli.doctor.machine import Machine

_FILES = 4096
"""Files and connections; a rank has some to each other rank, and DataLoaders have many."""
_PROCESSES = 4096


def check_limits(machine: Machine) -> Iterator[Finding]:
    """Of files, processes, locked memory and core files."""
    yield _at_least("nofile", "open files", _FILES, "ulimit -n", machine)
    yield _at_least("nproc", "processes and threads", _PROCESSES, "ulimit -u", machine)
    yield _locked_memory(machine)
    yield _core_files(machine)


def _at_least(name: str, what: str, wanted: int, command: str, machine: Machine) -> Finding:
    soft, hard = limit(name, machine)
    shown = f"{_words(soft)} {what}"
    if soft is None or soft >= wanted:
        return ok(f"limit {name}", shown)
    can = hard is None or hard >= wanted
    return warning(
        f"limit {name}",
        f"{shown} (at most {_words(hard)})",
        why="workers with many peers, threads or DataLoaders fail when they reach it",
        fix=f"{command} {wanted}, in the shell that starts the job"
        if can
        else f"let root raise {name} in /etc/security/limits.conf, or the container's --ulimit",
    )


def _locked_memory(machine: Machine) -> Finding:
    soft, _ = limit("memlock", machine)
    has_rdma = any((machine.root / "sys/class/infiniband").glob("*"))
    shown = "unlimited locked memory" if soft is None else f"{soft >> 10} KiB of locked memory"
    if soft is None or not has_rdma:
        return ok("limit memlock", shown + ("" if has_rdma else ", and no RDMA device"))
    return warning(
        "limit memlock",
        f"{shown}, and there are RDMA devices",
        why="NCCL over InfiniBand or RoCE locks its buffers, and fails where it may not",
        fix="ulimit -l unlimited; in a container: docker run --ulimit memlock=-1",
    )


def _core_files(machine: Machine) -> Finding:
    soft, _ = limit("core", machine)
    pattern = machine.text("/proc/sys/kernel/core_pattern") or "core"
    if soft == 0 or pattern.startswith("|"):
        return ok("limit core", "no core files" if soft == 0 else f"core files go to {pattern[1:]}")
    size = "of any size" if soft is None else f"of up to {soft >> 20} MiB"
    return warning(
        "limit core",
        f"core files {size}, to {pattern}",
        why="a worker that crashes writes all of its memory before it is gone, and recovery waits",
        fix="ulimit -c 0, unless you want to read them",
    )


def limit(name: str, machine: Machine) -> tuple[int | None, int | None]:
    """Soft and hard; None is unlimited. From /proc, as the process will hand them on."""
    label = _LABELS[name]
    for line in (machine.text("/proc/self/limits") or "").splitlines():
        if line.startswith(label):
            soft, hard = line[len(label) :].split()[:2]
            return _number(soft), _number(hard)
    soft_number, hard_number = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    return _finite(soft_number), _finite(hard_number)


_LABELS = {
    "nofile": "Max open files",
    "nproc": "Max processes",
    "memlock": "Max locked memory",
    "core": "Max core file size",
}


def _number(text: str) -> int | None:
    return None if text == "unlimited" else int(text)


def _finite(number: int) -> int | None:
    return None if number == resource.RLIM_INFINITY else number


def _words(number: int | None) -> str:
    return "unlimited" if number is None else str(number)
