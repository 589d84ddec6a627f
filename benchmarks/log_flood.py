"""A log flood: 1 GB from 8 ranks, with a crash in the middle of it, beside the same job in silence.

    python -m benchmarks.log_flood                        8 ranks, 1 GB, each lane 3 times
    python -m benchmarks.log_flood --megabytes 64 --times 1

In every lane, rank 1 dies while all other ranks are busy: computing (`silent`), or writing lines
to stderr as fast as they can, teed with -t 2 (`teed`) or only copied for the verdict (`kept`). How
long until all ranks run again? How much did the memory of the agent grow? Is every line in its
file? The lanes take turns. Fails if a line is missing, if the agent grows by more than 32 MB, or if
a kept copy grows beyond its bound.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import surroundings
from dlrover_cli.workers.log_file import KEPT_AT_EACH_END

MOST_GROWTH = 32.0
RANKS = 8
WIDTH = 100
LANES = {"silent": (), "teed": ("-t2",), "kept": ()}

WORKER = """\
import os, sys, time
directory, lane, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank, attempt = int(os.environ["RANK"]), os.environ["DLROVER_ATTEMPT"]
def stamp(event):
    with open(f"{directory}/{event}.{attempt}.{rank}", "w") as file:
        file.write(repr(time.monotonic()))
stamp("line")
if attempt == "1":
    sys.exit()
number = 0
def work():
    global number
    if lane == "silent":
        return sum(range(20_000))
    block = b"".join(b"%012d %s\\n" % (n, b"x" * 86) for n in range(number, number + 640))
    view = memoryview(block)
    while view:
        view = view[os.write(2, view):]
    number += 640
began = time.monotonic()
while number < lines and (lane != "silent" or time.monotonic() - began < 2):
    work()
stamp("done")
while True:
    work()
    if rank == 1 and len([n for n in os.listdir(directory) if n.startswith("done")]) == 8:
        stamp("crash")
        os._exit(3)
"""


class Missing(Exception):
    """A file is not what it should be."""


@dataclass(frozen=True, slots=True)
class Heat:
    """One job of one lane."""

    megabytes: float
    seconds: float
    """From the first line of the script to the crash."""
    recovery: float
    """From the crash until all ranks run again."""
    growth: float
    """Of the agent's resident memory since its workers started, in MB."""


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    heats: dict[str, list[Heat]] = {lane: [] for lane in LANES}
    for _ in range(options.times):
        for lane in LANES:
            with tempfile.TemporaryDirectory(prefix="flood-", dir=options.directory) as name:
                heats[lane].append(_run(lane, Path(name), options.megabytes))
    where = ", ".join(f"{name} {value}" for name, value in surroundings().items())
    print(f"{RANKS} ranks, {options.megabytes} MB or more, each {options.times} times. {where}.\n")
    print(
        "| lane | MB/s | crash → all ranks run again, median s | max | to silent | agent grew by |"
    )
    print("|---|---|---|---|---|---|")
    silent = statistics.median(heat.recovery for heat in heats["silent"])
    for lane, run in heats.items():
        print(_row(lane, run, silent))
    worst = max(heat.growth for run in heats.values() for heat in run)
    return 1 if worst > MOST_GROWTH else 0


def _run(lane: str, directory: Path, megabytes: int) -> Heat:
    lines = megabytes * 1_000_000 // RANKS // WIDTH
    (directory / "worker.py").write_text(WORKER)
    stamps = directory / "stamps"
    stamps.mkdir()
    program = Path(sys.executable).with_name("dlrover-run")
    command: list[str | Path] = [
        program,
        "--standalone",
        f"--nproc-per-node={RANKS}",
        "--max-restarts=1",
    ]
    process = subprocess.Popen(
        [*command, *LANES[lane], directory / "worker.py", stamps, lane, str(lines)],
        env={**os.environ, "XDG_STATE_HOME": str(directory / "state")},
        stderr=subprocess.DEVNULL,
    )
    resident = _watch_memory(process, stamps)
    if process.returncode != 0:
        raise SystemExit(f"the job of the lane {lane} ended with {process.returncode}")
    began = min(_stamps(stamps, "line.0"))
    crash = _stamps(stamps, "crash.0")[0]
    written = 0 if lane == "silent" else _check(lane, directory, lines)
    return Heat(
        written / 1e6,
        crash - began,
        max(_stamps(stamps, "line.1")) - crash,
        max(resident) - resident[0],
    )


def _watch_memory(process: "subprocess.Popen[bytes]", stamps: Path) -> list[float]:
    """In MB, from the start of the workers to the end of the job."""
    resident: list[float] = []
    while process.poll() is None:
        if resident or any(stamps.iterdir()):
            with contextlib.suppress(OSError, ValueError):
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
                resident.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
        time.sleep(0.05)
    return resident


def _stamps(directory: Path, event: str) -> list[float]:
    return [float(path.read_text()) for path in directory.glob(f"{event}.*")]


def _check(lane: str, directory: Path, lines: int) -> int:
    """The bytes that were written. Raises Missing."""
    written = 0
    for rank in range(RANKS):
        [path] = directory.glob(f"state/dlrover/runs/*/nodes/*/logs/attempt_0/{rank}/stderr.log")
        if lane == "kept":
            if path.stat().st_size > 3 * KEPT_AT_EACH_END:
                raise Missing(f"{path} has {path.stat().st_size} bytes")
            with path.open("rb") as file:
                file.seek(-WIDTH * 2, os.SEEK_END)
                written += int(file.read().splitlines()[1].split()[0]) * WIDTH
            continue
        number = -1
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if int(line[:12]) != number or (len(line) != WIDTH and number < lines):
                    raise Missing(f"{path} has {line[:12]!r} in line {number}")
        if number < lines - 1:
            raise Missing(f"{path} has {number + 1} lines instead of {lines}")
        written += path.stat().st_size
    return written


def _row(lane: str, heats: Sequence[Heat], silent: float) -> str:
    rate = statistics.median(heat.megabytes / heat.seconds for heat in heats)
    recovery = [heat.recovery for heat in heats]
    median = statistics.median(recovery)
    grown = max(heat.growth for heat in heats)
    rate_shown = "–" if lane == "silent" else f"{rate:.0f}"
    figures = f"{median:.3f} | {max(recovery):.3f} | {median / silent:.2f}"
    return f"| {lane} | {rate_shown} | {figures} | {grown:.1f} MB |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.log_flood",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--directory", help="where the logs go; the directory for temporary files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
