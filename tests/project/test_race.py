"""The race measures what it says, survives what fails, and knows its statistics and its limits."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import pytest

from benchmarks import race
from benchmarks.figures import FIGURES, LIMITS, Figure, Limit, Unit
from benchmarks.plot import svg
from benchmarks.processes import cpu_seconds, processes_of, proportional_memory, wait_for_end
from benchmarks.report import limit_cell, markdown
from benchmarks.results import Lane, Result, Verdict, percentile
from benchmarks.track import Launcher, NotRaced, Track

# Starts the workers as a launcher would, one attempt after the other until one succeeds.
STUB = """\
import os, subprocess, sys, time
if "--help" in sys.argv:
    sys.exit(0)
time.sleep(DELAY)
ranks = int(next(a for a in sys.argv if a.startswith("--nproc")).partition("=")[2])
script = next(i for i, a in enumerate(sys.argv) if a.endswith("worker.py"))
for attempt in range(2):
    workers = [
        subprocess.Popen(
            [sys.executable, *sys.argv[script:]], env=os.environ | {"RANK": str(rank)}
        )
        for rank in range(ranks)
    ]
    if not any([worker.wait() for worker in workers]):
        sys.exit(0)
sys.exit("no attempt succeeded")
"""


@pytest.fixture
def stub(tmp_path):
    def make(name: str, delay: float = 0.0, source: str = STUB) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(f"DELAY = {delay}\n{source}")
        return f"--launcher={name}={sys.executable} {path}"

    return make


def result_of(
    *samples: list[float], limit: Limit | None = None, unit: Unit = Unit.SECONDS
) -> Result:
    figure = Figure("figure", "`a` < b", lambda _: 0.0, unit, limit)
    return Result(figure, [Lane(name, each) for name, each in zip("abc", samples, strict=False)])


def test_contenders_are_compared_by_their_medians(stub, tmp_path, capsys):
    output = tmp_path / "race.md"
    arguments = ["help", "first_line_2", "--repeat=2", f"--output={output}"]
    assert race.main([*arguments, stub("quick"), stub("slow", delay=0.5)]) == 0
    table = capsys.readouterr().out
    assert "slow / quick" in table
    assert table.splitlines()[2:] == output.read_text().splitlines()[2:]
    figures = json.loads(output.with_suffix(".json").read_text())["figures"]
    assert figures["first_line_2"]["ratios"]["slow"] > 2
    assert [len(lane["samples"]) for lane in figures["help"]["lanes"]] == [2, 2]
    assert "quick" in output.with_suffix(".svg").read_text()


def test_a_contender_that_fails_is_told_and_given_up(stub, capsys):
    broken = stub("broken", source="raise SystemExit('it does not work')\n")
    missing = "--launcher=missing=/none/such"
    assert race.main(["help", "--repeat=4", stub("fine"), broken, missing]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    assert "broken failed 2 of 2: exit code 1: it does not work" in row
    assert "missing failed 2 of 2: cannot start: No such file or directory" in row
    assert "| 4 / 0 / 0 |" in row


def test_a_run_that_hangs_is_ended(stub, capsys):
    hanging = stub("hanging", source="import time; time.sleep(60)\n")
    assert race.main(["first_line_1", "--repeat=1", "--timeout=0.5", hanging]) == 0
    assert "still running after 0.5 s" in capsys.readouterr().out


def test_no_run_starts_after_the_time_is_up(stub, capsys):
    assert race.main(["help", "--minutes=0", stub("fine")]) == 0
    assert "out of time" in capsys.readouterr().out


def test_figures_are_listed_and_unknown_ones_refused(capsys):
    assert race.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in FIGURES)
    with pytest.raises(SystemExit):
        race.main(["none_such"])
    assert "no such figure: none_such" in capsys.readouterr().err


def test_figures_are_chosen_by_their_name_or_how_it_begins():
    def names(*arguments: str) -> list[str]:
        return [figure.name for figure in race.parse_options(arguments).figures]

    assert names("exit") == ["exit_2", "exit_8"]
    assert names("recover_step_2x1", "help") == ["help", "recover_step_2x1"]
    assert names() == list(FIGURES)


def test_percentiles_are_values_that_were_measured():
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95.0
    assert percentile([5.0], 0.95) == 5.0


def test_every_limit_is_that_of_a_figure():
    assert set(LIMITS) <= set(FIGURES)


@pytest.mark.parametrize(
    "samples, verdict",
    [
        (([10.0], [1.0]), Verdict.MET),
        (([10.0], [1.1]), Verdict.MISSED),
        (([10.0, 1.0, 10.0], [1.0, 9.0, 1.0]), Verdict.MET),
        (([], [1.0]), Verdict.NOT_MEASURED),
        (([10.0], []), Verdict.NOT_MEASURED),
        (([10.0], [1.0], [99.0]), Verdict.MET),
    ],
)
def test_the_limit_is_for_the_median_of_the_second_contender(samples, verdict):
    assert result_of(*samples, limit=Limit(0.1, "1/10")).verdict() is verdict


@pytest.mark.parametrize(
    "samples, cell",
    [([1.0] * 3, "all: met"), ([1.0, 0.0, 1.0], "all: missed"), ([], "all: not measured")],
)
def test_every_single_run_has_to_recover(samples, cell):
    assert limit_cell(result_of([0.0], samples, unit=Unit.RECOVERED)) == cell


def test_a_missed_limit_fails_the_check_alone(stub, capsys):
    contenders = [stub("one"), stub("two")]
    assert race.main(["help", "--repeat=1", *contenders]) == 0
    assert "0.15: missed" in capsys.readouterr().out
    assert race.main(["help", "--repeat=1", "--check", *contenders]) == 1
    assert race.main(["first_line_1", "--repeat=1", "--check", *contenders]) == 0


def test_a_contender_that_does_not_recover_is_given_up_and_the_others_go_on():
    def measure(track: Track) -> float:
        if track.launcher.name == "absent":
            raise NotRaced
        return float(track.launcher.name == "good")

    launchers = [Launcher(name, ()) for name in ("bad", "good", "absent")]
    options = race.parse_options(["--recoveries=10"])
    options.launcher = launchers
    figure = Figure("figure", "recovered", measure, Unit.RECOVERED)
    result = race.race(figure, options, time.monotonic() + 60)
    assert "| recovered | 0 of 3 | 10 of 10 | - |" in markdown([result], launchers)


def test_each_unit_has_its_own_form():
    table = markdown([result_of([0.25], [0.0], unit=Unit.PERCENT)], [Launcher("a", ())] * 2)
    assert "| 0.25 (0.25, 0.25) % | 0.00 (0.00, 0.00) % | 0 |" in table
    table = markdown([result_of([1364.2], [682.1], unit=Unit.MEGABYTES)], [Launcher("a", ())] * 2)
    assert "| 1364 (1364, 1364) MB | 682 (682, 682) MB | 0.500 |" in table


def test_the_plot_has_a_dot_for_each_median_above_zero():
    results = [
        result_of([1.0, 2.0], [0.1], []),
        result_of([1364.0], [249.0], [], unit=Unit.MEGABYTES),
        result_of([0.4], [0.0], [], unit=Unit.PERCENT),
        result_of([0.0], [1.0], [], unit=Unit.RECOVERED),
    ]
    root = ElementTree.fromstring(svg(results))
    name = "{http://www.w3.org/2000/svg}circle"
    dots = [each for each in root.iter(name) if len(each)]
    assert [dot[0].text for dot in dots] == [
        "a: 1.5 s",
        "b: 0.1 s",
        "a: 1.36e+03 MB",
        "b: 249 MB",
        "a: 0.4 %",
    ]
    assert ElementTree.fromstring(svg([])) is not None


@pytest.fixture
def sleeper(tmp_path) -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    started = []

    def start(seconds: str) -> "subprocess.Popen[bytes]":
        env = os.environ | {"RACE_DIRECTORY": str(tmp_path)}
        started.append(subprocess.Popen(["sleep", seconds], env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_processes_of_a_run_are_found_and_measured(sleeper, tmp_path):
    process = sleeper("60")
    assert processes_of(tmp_path) == {process.pid}
    assert process.pid in processes_of(tmp_path / "other", [os.getpid()])
    assert 0 < proportional_memory([process.pid]) < 50
    assert cpu_seconds([process.pid])[process.pid] < 1
    assert cpu_seconds([os.getpid()])[os.getpid()] == pytest.approx(time.process_time(), abs=0.1)


def test_ends_are_seen_and_whoever_goes_on_is_missing(sleeper):
    short, long = sleeper("0.05"), sleeper("60")
    ended = wait_for_end([short.pid, long.pid], time.monotonic() + 0.5)
    assert set(ended) == {short.pid}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["help", "first_line_2", "exit_2"], marks=pytest.mark.full, id="quick"),
        pytest.param(
            [
                *("first_step_2", "recover_all_reduce_2", "recover_step_2x1"),
                *("detect_2", "idle_cpu_2", "rendezvous_4"),
            ],
            marks=pytest.mark.soak,
            id="slow",
        ),
    ],
)
def test_the_real_contenders_finish_each_kind_of_figure(tmp_path, names):
    output = tmp_path / "race.md"
    assert race.main([*names, "--repeat=1", f"--output={output}"]) == 0
    document = json.loads(output.with_suffix(".json").read_text())
    missing = {
        (name, lane["launcher"]): lane["failures"]
        for name, figure in document["figures"].items()
        for lane in figure["lanes"]
        if lane["is_raced"] and not lane["samples"]
    }
    assert missing == {}
