"""Race dlrover-run against torchrun on this machine, run by run in turn.

    python -m benchmarks.race                      every figure, five times each
    python -m benchmarks.race --quick              twice each
    python -m benchmarks.race help exit            only these figures
    python -m benchmarks.race --output race.md     the table to race.md, all samples to race.json

The contenders take turns within each repetition, so that a slow minute of the machine hits both.
The table gives medians, their ratio, and p95 and max beside them. A run that fails is counted and
its reason is told in the table; it does not end the race.
"""

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.figures import FIGURES, Figure
from benchmarks.track import Launcher, RunFailed, Track

# torchrun's workers share the agent's store across attempts; without this they often never recover.
TORCHRUN_RECOVERY = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
FAILURES_BEFORE_GIVING_UP = 2


@dataclass(slots=True)
class Lane:
    """One contender's results in one figure."""

    launcher: str
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def is_given_up(self) -> bool:
        return len(self.failures) >= FAILURES_BEFORE_GIVING_UP

    def summary(self) -> dict[str, float] | None:
        if not self.seconds:
            return None
        return {
            "median": statistics.median(self.seconds),
            "p95": percentile(self.seconds, 0.95),
            "max": max(self.seconds),
        }


@dataclass(slots=True)
class Result:
    """All lanes of one figure."""

    figure: Figure
    lanes: list[Lane]
    out_of_time: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.list:
        for figure in FIGURES.values():
            print(f"{figure.name:22} {figure.title}")
        return 0
    deadline = time.monotonic() + 60 * options.minutes
    results = []
    for name in options.figures or FIGURES:
        result = race(FIGURES[name], options, deadline)
        results.append(result)
        print(f"{name}: {one_line(result)}", file=sys.stderr, flush=True)
    table = markdown(results, options)
    print(table)
    if options.output:
        options.output.write_text(table + "\n")
        document = json.dumps(as_document(results, options), indent=2)
        options.output.with_suffix(".json").write_text(document + "\n")
    return 0


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="names as of --list")
    parser.add_argument("--list", action="store_true", help="show the figures and exit")
    parser.add_argument("--repeat", type=int, default=5, help="runs per figure and contender")
    parser.add_argument("--quick", action="store_true", help="the same as --repeat 2")
    parser.add_argument("--minutes", type=float, default=20, help="start no run after this long")
    parser.add_argument("--timeout", type=float, default=90, help="seconds that one run may take")
    parser.add_argument(
        "--launcher",
        action="append",
        type=parse_launcher,
        metavar="NAME=COMMAND",
        help="a contender, instead of torchrun and dlrover-run; the first is what ratios refer to",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write FILE and FILE's .json")
    options = parser.parse_args(arguments)
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))} (see --list)")
    if options.quick:
        options.repeat = 2
    options.launcher = options.launcher or default_launchers()
    return options


def parse_launcher(text: str) -> Launcher:
    name, separator, command = text.partition("=")
    if not separator or not command:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    is_torchrun = Path(shlex.split(command)[0]).name == "torchrun"
    return Launcher(name, tuple(shlex.split(command)), TORCHRUN_RECOVERY if is_torchrun else {})


def default_launchers() -> list[Launcher]:
    scripts = Path(sys.executable).parent
    return [
        Launcher("torchrun", (str(scripts / "torchrun"),), TORCHRUN_RECOVERY),
        Launcher("dlrover-run", (str(scripts / "dlrover-run"),)),
    ]


def race(figure: Figure, options: argparse.Namespace, deadline: float) -> Result:
    """Let the contenders run in turn, the one that goes first changing with each repetition."""
    result = Result(figure, [Lane(launcher.name) for launcher in options.launcher])
    pairs = list(zip(options.launcher, result.lanes, strict=True))
    for repetition in range(options.repeat):
        for launcher, lane in pairs if repetition % 2 == 0 else reversed(pairs):
            if time.monotonic() >= deadline:
                result.out_of_time = True
                return result
            if lane.is_given_up:
                continue
            try:
                lane.seconds.append(figure.measure(Track(launcher, options.timeout)))
            except RunFailed as failure:
                lane.failures.append(str(failure))
    return result


def markdown(results: Iterable[Result], options: argparse.Namespace) -> str:
    names = [launcher.name for launcher in options.launcher]
    heads = ["figure", *(f"{name}: median (p95, max)" for name in names)]
    heads += [*(f"{name} / {names[0]}" for name in names[1:]), "runs", "remarks"]
    lines = [
        "Seconds, smaller is better. "
        + ", ".join(f"{k} {v}" for k, v in surroundings().items())
        + ".",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for result in results:
        cells = [result.figure.title, *map(lane_cell, result.lanes)]
        cells += [ratio_cell(result.lanes[0], lane) for lane in result.lanes[1:]]
        cells += [" / ".join(str(len(lane.seconds)) for lane in result.lanes), remarks(result)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def lane_cell(lane: Lane) -> str:
    summary = lane.summary()
    if summary is None:
        return "-"
    return f"{summary['median']:.3f} ({summary['p95']:.3f}, {summary['max']:.3f})"


def ratio_cell(baseline: Lane, lane: Lane) -> str:
    ratio = ratio_of_medians(baseline, lane)
    return "-" if ratio is None else f"{ratio:.3f}"


def ratio_of_medians(baseline: Lane, lane: Lane) -> float | None:
    if not baseline.seconds or not lane.seconds:
        return None
    return statistics.median(lane.seconds) / statistics.median(baseline.seconds)


def remarks(result: Result) -> str:
    parts = [
        f"{lane.launcher} failed {len(lane.failures)} of {len(lane.failures) + len(lane.seconds)}: "
        f"{lane.failures[-1]}"
        for lane in result.lanes
        if lane.failures
    ]
    if result.out_of_time:
        parts.append("cut short: out of time")
    return "; ".join(parts)


def one_line(result: Result) -> str:
    lanes = ", ".join(f"{lane.launcher} {lane_cell(lane)}" for lane in result.lanes)
    remark = remarks(result)
    return f"{lanes} [{remark}]" if remark else lanes


def as_document(results: Iterable[Result], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "surroundings": surroundings(),
        "launchers": {launcher.name: list(launcher.command) for launcher in options.launcher},
        "figures": {
            result.figure.name: {
                "title": result.figure.title,
                "out_of_time": result.out_of_time,
                "lanes": [asdict(lane) | {"summary": lane.summary()} for lane in result.lanes],
                "ratios": {
                    lane.launcher: ratio_of_medians(result.lanes[0], lane)
                    for lane in result.lanes[1:]
                },
            }
            for result in results
        },
    }


def surroundings() -> dict[str, str]:
    """What a reader needs to know about where the numbers come from."""
    return {
        "torch": metadata.version("torch"),
        "Python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of the values does not exceed."""
    return sorted(values)[math.ceil(fraction * len(values)) - 1]


if __name__ == "__main__":
    sys.exit(main())
