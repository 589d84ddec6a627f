"""Race dlrover-run against torchrun on this machine, run by run in turn.

    python -m benchmarks.race                      every figure, five times each
    python -m benchmarks.race --quick              twice each
    python -m benchmarks.race help exit recover_   only these figures, or that begin so
    python -m benchmarks.race --output race.md     the table to race.md, beside it all samples in
                                                   race.json and a plot in race.svg
    python -m benchmarks.race --check              exit code 1 if a limit was not met

The contenders take turns within each repetition, so that a slow minute of the machine hits both.
ft_launcher of nvidia-resiliency-ext takes part where it is installed. The table gives medians,
their ratio, and p95 and max beside them. A run that fails is counted and its reason is told in the
table; it does not end the race.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks import rendezvous_scale
from benchmarks.figures import FIGURES, Figure, Unit, chosen
from benchmarks.plot import svg
from benchmarks.report import as_document, markdown, one_line
from benchmarks.results import Lane, Result, Verdict
from benchmarks.track import Launcher, NotRaced, RunFailed, Track

# torchrun's workers share the agent's store across attempts; without this they often never recover.
TORCHRUN_RECOVERY = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
QUICK, QUICK_RECOVERIES = 2, 10


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.list:
        for figure in FIGURES.values():
            print(f"{figure.name:28} {figure.title}")
        return 0
    deadline = time.monotonic() + 60 * options.minutes
    results = []
    for figure in options.figures:
        result = race(figure, options, deadline)
        results.append(result)
        print(one_line(result), file=sys.stderr, flush=True)
        if options.output:
            write(results, options)
    print(markdown(results, options.launcher))
    is_met = all(result.verdict() in (None, Verdict.MET) for result in results)
    return 0 if is_met or not options.check else 1


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help="names as of --list, or how names begin"
    )
    parser.add_argument("--list", action="store_true", help="show the figures and exit")
    parser.add_argument("--repeat", type=int, default=5, help="runs per figure and contender")
    parser.add_argument("--recoveries", type=int, default=100, help="runs of 'recovered' figures")
    parser.add_argument(
        "--quick", action="store_true", help=f"--repeat {QUICK} --recoveries {QUICK_RECOVERIES}"
    )
    parser.add_argument("--minutes", type=float, default=90, help="start no run after this long")
    parser.add_argument("--timeout", type=float, default=90, help="seconds that one run may take")
    parser.add_argument(
        "--launcher",
        action="append",
        type=parse_launcher,
        metavar="NAME=COMMAND",
        help="a contender, instead of torchrun and dlrover-run; the first is what ratios refer to, "
        "the second what limits are for",
    )
    parser.add_argument("--check", action="store_true", help="exit code 1 if a limit was not met")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write FILE, and FILE's .json and .svg"
    )
    options = parser.parse_args(arguments)
    options.figures, unknown = chosen(options.figures)
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)} (see --list)")
    if options.quick:
        options.repeat, options.recoveries = QUICK, QUICK_RECOVERIES
    options.launcher = options.launcher or default_launchers()
    return options


def parse_launcher(text: str) -> Launcher:
    name, separator, command = text.partition("=")
    if not separator or not command:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return make_launcher(name, tuple(shlex.split(command)))


def default_launchers() -> list[Launcher]:
    scripts = Path(sys.executable).parent
    launchers = [
        make_launcher(name, (str(scripts / name),)) for name in ("torchrun", "dlrover-run")
    ]
    if find_spec("nvidia_resiliency_ext"):
        command = (str(scripts / "ft_launcher"), "--ignore-missing-fault-tol-cfg")
        launchers.append(make_launcher("ft_launcher", command))
    return launchers


def make_launcher(name: str, command: tuple[str, ...]) -> Launcher:
    """What is known about a contender by its program's name."""
    match Path(command[0]).name:
        case "torchrun":
            backend = rendezvous_scale.TORCHS
            return Launcher(name, command, TORCHRUN_RECOVERY, backend, backend)
        case "ft_launcher":
            return Launcher(name, command, TORCHRUN_RECOVERY)
        case "dlrover-run":
            backend = rendezvous_scale.OURS
            return Launcher(name, command, {}, backend, backend)
        case _:
            return Launcher(name, command)


def race(figure: Figure, options: argparse.Namespace, deadline: float) -> Result:
    """Let the contenders run in turn, the one that goes first changing with each repetition."""
    result = Result(figure, [Lane(launcher.name) for launcher in options.launcher])
    pairs = list(zip(options.launcher, result.lanes, strict=True))
    repeat = options.recoveries if figure.unit is Unit.RECOVERED else options.repeat
    for repetition in range(repeat):
        for launcher, lane in pairs if repetition % 2 == 0 else reversed(pairs):
            if time.monotonic() >= deadline:
                result.out_of_time = True
                return result
            if not result.is_over_for(lane):
                run(figure, Track(launcher, options.timeout), lane)
    return result


def run(figure: Figure, track: Track, lane: Lane) -> None:
    try:
        lane.samples.append(figure.measure(track))
    except NotRaced:
        lane.is_raced = False
    except RunFailed as failure:
        lane.failures.append(str(failure))


def write(results: Sequence[Result], options: argparse.Namespace) -> None:
    """All that is known so far: a race that is interrupted has not been for nothing."""
    document = json.dumps(as_document(results, options.launcher), indent=2)
    options.output.write_text(markdown(results, options.launcher) + "\n")
    options.output.with_suffix(".json").write_text(document + "\n")
    options.output.with_suffix(".svg").write_text(svg(results) + "\n")


if __name__ == "__main__":
    sys.exit(main())
