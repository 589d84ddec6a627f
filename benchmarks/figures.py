"""What the race measures. A figure is a function from a track to seconds, registered by its name.

To add one, write a function and decorate it; `python -m benchmarks.race --list` shows it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.track import Track

Measure = Callable[[Track], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A named measurement in seconds; smaller is better."""

    name: str
    title: str
    measure: Measure


FIGURES: dict[str, Figure] = {}


def figure(name: str, title: str) -> Callable[[Measure], Measure]:
    """Register a measurement."""

    def register(measure: Measure) -> Measure:
        FIGURES[name] = Figure(name, title, measure)
        return measure

    return register


@figure("help", "`--help`")
def help_page(track: Track) -> float:
    return track.command("--help")


@figure("first_line", "start → first line of a script without torch, 2 workers")
def first_line(track: Track) -> float:
    with track.workers(2, "line") as run:
        return run.last("line", ranks=2) - run.started


def first_work(track: Track, *, workers: int, work: str) -> float:
    with track.workers(workers, work) as run:
        return run.last("work", ranks=workers) - run.started


def recovery(track: Track, *, workers: int, work: str) -> float:
    with track.workers(workers, work, "--crash", restarts=1) as run:
        return run.last("work", ranks=workers, attempt=1) - run.only("crash")


for _workers in (2, 8):
    for _work, _words in (("all_reduce", "all_reduce"), ("step", "DDP optimizer step")):
        figure(f"first_{_work}_{_workers}", f"start → first {_words}, {_workers} workers")(
            partial(first_work, workers=_workers, work=_work)
        )
        figure(
            f"recover_{_work}_{_workers}",
            f"crash → every rank's {_words} again, {_workers} workers",
        )(partial(recovery, workers=_workers, work=_work))


@figure("exit", "last work → launcher exit, 2 workers")
def launcher_exit(track: Track) -> float:
    with track.workers(2, "all_reduce") as run:
        return run.ended - run.last("last", ranks=2)
