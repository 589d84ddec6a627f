"""What /proc tells about the processes of a run: which they are, their memory, their CPU time."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

_PROC = Path("/proc")


def processes_of(directory: Path, roots: Iterable[int] = ()) -> set[int]:
    """Whatever carries the run's directory in its environment, and all descendants of the roots."""
    needle = f"RACE_DIRECTORY={directory}\0".encode()
    found, parents = set(roots), {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = _parent(entry)
                if needle in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found & set(parents)


def kill_processes_of(directory: Path) -> None:
    """End whatever still carries the run's directory in its environment."""
    for pid in processes_of(directory):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def proportional_memory(pids: Iterable[int]) -> float:
    """Their PSS in MB: what they share counts once among them."""
    return sum(map(_pss_in_kilobytes, pids)) / 1024


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """User and system time that each has used, in nanosecond steps; none for one that is gone."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds[pid] = time.clock_gettime(_cpu_clock(pid))
    return seconds


def wait_for_end(pids: Sequence[int], deadline: float) -> dict[int, float]:
    """When each process ended (`time.monotonic`), seen at once and not by polling.

    Those that were still running at the deadline are missing.
    """
    ended: dict[int, float] = {}
    descriptors = {}
    with contextlib.ExitStack() as stack:
        for pid in pids:
            descriptor = os.pidfd_open(pid)
            stack.callback(os.close, descriptor)
            descriptors[descriptor] = pid
        while len(ended) < len(descriptors) and (left := deadline - time.monotonic()) > 0:
            waiting = [each for each, pid in descriptors.items() if pid not in ended]
            ready, _, _ = select.select(waiting, [], [], left)
            now = time.monotonic()
            ended |= {descriptors[descriptor]: now for descriptor in ready}
    return ended


def _parent(entry: Path) -> int:
    # The name, in parentheses, may hold anything.
    return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])


def _pss_in_kilobytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _cpu_clock(pid: int) -> int:
    """clock_getcpuclockid(3), which Python does not have; 2 is CPUCLOCK_SCHED."""
    return (~pid << 3) | 2
