"""CPUs that this process may use, and how many threads the workers would start on them."""

import os
from collections.abc import Iterator

from dlrover_cli.doctor.cgroup import cgroup_of
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import counted

_THREADS = "OMP_NUM_THREADS"


def check_processors(machine: Machine) -> Iterator[Finding]:
    """How many there are, and how many are asked for."""
    there = len(os.sched_getaffinity(0))
    quota = cgroup_of(machine).cpus
    usable = there if quota is None else min(float(there), quota)
    shown = counted(there, "CPU")
    if quota is not None and quota < there:
        shown += f", of which the control group grants the time of {quota:g}"
    workers = _workers(machine)
    if workers > usable and usable < there:
        yield warning(
            "CPUs",
            f"{shown}, for {counted(workers, 'worker')}",
            why="workers are held up in the middle of a step whenever the quota is used up",
            fix="ask the container or the batch system for more CPUs, or start fewer workers",
        )
    elif workers > usable:
        yield warning(
            "CPUs",
            f"{shown}, for {counted(workers, 'worker')}",
            why="workers wait for each other at every collective operation",
            fix="start fewer workers: --nproc-per-node",
        )
    else:
        yield ok("CPUs", shown)
    yield from _threads(machine, workers, usable)


def _threads(machine: Machine, workers: int, usable: float) -> Iterator[Finding]:
    text = machine.environ.get(_THREADS)
    if text is None:
        yield ok("threads", f"{_THREADS} is not set; several workers get 1 each")
        return
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        yield problem(
            "threads",
            f"{_THREADS}={text} is no number of threads",
            why="OpenMP ignores it, and each worker starts a thread for every CPU",
            fix=f"unset it, or write {_THREADS}=1",
        )
    elif workers > 1 and workers * int(first) > usable:
        yield warning(
            "threads",
            f"{_THREADS}={text} for {workers} workers, on {usable:g} CPUs",
            why="threads take the CPUs from each other, and every step is slower",
            fix=f"{_THREADS}={max(int(usable / workers), 1)}",
        )
    else:
        yield ok("threads", f"{_THREADS}={text}")


def _workers(machine: Machine) -> int:
    text = machine.settings.nproc_per_node
    return int(text) if text.isdecimal() else 1
