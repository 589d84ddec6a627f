"""What the race measures. A figure is a function from a track to a number, registered by its name.

To add one, write a function and decorate it; `python -m benchmarks.race --list` shows it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from benchmarks import rendezvous_scale
from benchmarks.processes import cpu_seconds, processes_of, proportional_memory, wait_for_end
from benchmarks.track import Job, NotRaced, RunFailed, Track

Measure = Callable[[Track], float]

SECONDS_TO_SETTLE = 2.0
SECONDS_OF_IDLENESS = 5.0
ROUNDS = 3


class Unit(Enum):
    SECONDS = "s"
    MEGABYTES = "MB"
    PERCENT = "%"
    RECOVERED = "recovered"  # samples are 1 and 0, and their sum is what counts


@dataclass(frozen=True, slots=True)
class Limit:
    """What the median of the second contender may be at most, as a share of the first one's."""

    ratio: float
    words: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A named measurement; smaller is better, unless it counts recoveries: all of them have to."""

    name: str
    title: str
    measure: Measure
    unit: Unit = Unit.SECONDS
    limit: Limit | None = None


def at_most(ratio: float) -> Limit:
    return Limit(ratio, f"{ratio:g}")


def one_in(times: int) -> Limit:
    return Limit(1 / times, f"1/{times}")


# What the project has set itself, in this one place.
LIMITS = {
    "help": at_most(0.15),
    "first_step_2": at_most(0.6),
    "first_step_8": at_most(0.2),
    "recover_all_reduce_2": one_in(25),
    "recover_all_reduce_8": one_in(50),
    "recover_all_reduce_2x1": one_in(25),
    "recover_step_2": one_in(25),
    "recover_step_8": one_in(40),
    "recover_step_2x1": one_in(25),
    "exit_2": at_most(0.2),
    "exit_8": at_most(0.2),
    "memory_8": at_most(0.3),
    "rendezvous_1024": one_in(20),
}

FIGURES: dict[str, Figure] = {}


def figure(name: str, title: str, unit: Unit = Unit.SECONDS) -> Callable[[Measure], Measure]:
    """Register a measurement."""

    def register(measure: Measure) -> Measure:
        FIGURES[name] = Figure(name, title, measure, unit, LIMITS.get(name))
        return measure

    return register


def chosen(names: Sequence[str]) -> tuple[list[Figure], list[str]]:
    """The figures of these names, or that begin with them, in their order; and the unknown ones."""
    wanted: set[str] = set()
    unknown = []
    for name in names:
        found = {name} if name in FIGURES else {each for each in FIGURES if each.startswith(name)}
        wanted |= found
        if not found:
            unknown.append(name)
    return [each for each in FIGURES.values() if not names or each.name in wanted], unknown


# ---- the measurements ---------------------------------------------------------------------------


@figure("help", "`--help`")
def help_page(track: Track) -> float:
    return track.command("--help")


def first(track: Track, *, event: str, workers: int, work: str) -> float:
    with track.workers(workers, work) as job:
        job.finish()
        return job.last(event, ranks=workers) - job.started


def first_on_two_nodes(track: Track, *, work: str) -> float:
    with track.nodes(2, work, backend=track.launcher.backend) as job:
        job.finish()
        return job.last("work", ranks=2) - job.started


def recovery(track: Track, *, workers: int, work: str) -> float:
    with track.workers(workers, work, "crash") as job:
        return _seconds_to_recover(job, workers)


def recovery_on_two_nodes(track: Track, *, work: str, backend: str | None = None) -> float:
    with track.nodes(2, work, "crash", backend=backend or track.launcher.backend) as job:
        return _seconds_to_recover(job, 2)


def _seconds_to_recover(job: Job, ranks: int) -> float:
    job.finish()
    return job.last("work", ranks=ranks, attempt=1) - job.only("crash")


def detection(track: Track, *, workers: int) -> float:
    """Nothing but the launcher can end the survivors, so their end shows that it has decided."""
    survivors = [0, *range(2, workers)]
    with track.workers(workers, "all_reduce", "crash_beside_idle_ranks") as job:
        pids = [stamp.pid for stamp in job.wait_for("idle", ranks=survivors)]
        ended = wait_for_end(pids, job.started + job.timeout)
        if len(ended) < len(pids):
            raise RunFailed(f"survivors still running after {job.timeout:g} s")
        return max(ended.values()) - job.only("crash")


def launcher_exit(track: Track, *, workers: int) -> float:
    with track.workers(workers, "all_reduce") as job:
        ended = job.finish()
        return ended - job.last("last", ranks=workers)


def memory(track: Track, *, workers: int) -> float:
    with track.workers(workers, "step", "idle") as job:
        job.wait_for("idle", ranks=range(workers))
        return proportional_memory(_settled(job))


def idle_cpu(track: Track, *, workers: int) -> float:
    with track.workers(workers, "step", "idle") as job:
        own = {stamp.pid for stamp in job.wait_for("idle", ranks=range(workers))}
        before = cpu_seconds(_settled(job) - own)
        began = time.monotonic()
        time.sleep(SECONDS_OF_IDLENESS)
        after = cpu_seconds(processes_of(job.directory, job.launchers) - own)
        elapsed = time.monotonic() - began
        used = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
        return 100 * used / elapsed


def _settled(job: Job) -> set[int]:
    """The processes of the job, once a while has gone by in which none came or went.

    A launcher may start in idle time what it will need later; that is to be counted.
    """
    deadline = job.started + job.timeout
    known: set[int] = set()
    while time.monotonic() < deadline:
        found = processes_of(job.directory, job.launchers)
        if found == known:
            return found
        known = found
        time.sleep(SECONDS_TO_SETTLE)
    raise RunFailed(f"processes still come and go after {job.timeout:g} s")


def recovered(track: Track, *, workers: int) -> float:
    """1 if a crashed run got to its successful end, each launcher as it is by default."""
    with track.workers(workers, "all_reduce", "crash", recovery_env=False) as job:
        try:
            _seconds_to_recover(job, workers)
        except RunFailed as failure:
            if not job.has("crash"):  # then there was nothing to recover from
                raise RunFailed(f"before the crash: {failure}") from None
            return 0.0
        return 1.0


def rendezvous(track: Track, *, nodes: int, nodes_with_c10d: int) -> float:
    """The median of a first round and two more, as `benchmarks.rendezvous_scale` has it."""
    backend = track.launcher.simulated_backend
    count = nodes_with_c10d if backend == rendezvous_scale.TORCHS else nodes
    if backend is None or count == 0:
        raise NotRaced
    try:
        seconds = rendezvous_scale.measure(backend, count, ROUNDS)
    except SystemExit as error:  # what ends its own command must not end the race
        raise RunFailed(str(error)) from None
    return statistics.median(seconds)


def _register() -> None:
    words = {"all_reduce": "all_reduce", "step": "DDP optimizer step"}
    for workers in (1, 2, 8):
        figure(
            f"first_line_{workers}",
            f"start → first line of a script without torch, {_workers(workers)}",
        )(partial(first, event="line", workers=workers, work="line"))
    for work, what in words.items():
        for workers in (1, 2, 8):
            figure(f"first_{work}_{workers}", f"start → first {what}, {_workers(workers)}")(
                partial(first, event="work", workers=workers, work=work)
            )
    figure("first_step_2x1", "start → first DDP optimizer step, 2 nodes × 1 worker")(
        partial(first_on_two_nodes, work="step")
    )
    for work, what in words.items():
        again = f"crash → every rank's {what} again"
        for workers in (2, 8):
            figure(f"recover_{work}_{workers}", f"{again}, {_workers(workers)}")(
                partial(recovery, workers=workers, work=work)
            )
        figure(f"recover_{work}_2x1", f"{again}, 2 nodes × 1 worker")(
            partial(recovery_on_two_nodes, work=work)
        )
        figure(f"recover_{work}_2x1_c10d", f"{again}, 2 nodes × 1 worker, all with c10d")(
            partial(recovery_on_two_nodes, work=work, backend="c10d")
        )
    for workers in (2, 8):
        figure(
            f"detect_{workers}",
            f"crash → the launcher has ended every survivor, {_workers(workers)}",
        )(partial(detection, workers=workers))
    for workers in (2, 8):
        figure(f"exit_{workers}", f"last work → launcher exit, {_workers(workers)}")(
            partial(launcher_exit, workers=workers)
        )
    figure("memory_8", "PSS of the whole job, 8 idle workers after a step", Unit.MEGABYTES)(
        partial(memory, workers=8)
    )
    figure("idle_cpu_2", "CPU of launcher and helpers, 2 idle workers", Unit.PERCENT)(
        partial(idle_cpu, workers=2)
    )
    for nodes in (4, 16, 64):
        figure(f"rendezvous_{nodes}", f"rendezvous of {nodes} simulated agents")(
            partial(rendezvous, nodes=nodes, nodes_with_c10d=nodes)
        )
    figure("rendezvous_256", "rendezvous of 256 simulated agents")(
        partial(rendezvous, nodes=256, nodes_with_c10d=0)
    )
    figure("rendezvous_1024", "rendezvous of 1,024 simulated agents (c10d: of 64)")(
        partial(rendezvous, nodes=1024, nodes_with_c10d=64)
    )
    figure("recovered_8", "recovered by default, 8 workers", Unit.RECOVERED)(
        partial(recovered, workers=8)
    )


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


_register()
