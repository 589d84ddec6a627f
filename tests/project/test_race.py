"""The race measures what it says, survives what fails, and knows its statistics."""

import json
import sys

import pytest

from benchmarks import race
from benchmarks.figures import FIGURES

# Starts the workers as a launcher would, one attempt after the other until one succeeds.
STUB = """\
import os, subprocess, sys, time
if "--help" in sys.argv:
    sys.exit(0)
time.sleep(DELAY)
ranks = int(next(a for a in sys.argv if a.startswith("--nproc")).partition("=")[2])
script = next(i for i, a in enumerate(sys.argv) if a.endswith("worker.py"))
for attempt in ("0", "1"):
    workers = [
        subprocess.Popen(
            [sys.executable, *sys.argv[script:]],
            env=os.environ | {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": attempt},
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


def test_contenders_are_compared_by_their_medians(stub, tmp_path, capsys):
    output = tmp_path / "race.md"
    arguments = ["help", "first_line", "--repeat=2", f"--output={output}"]
    assert race.main([*arguments, stub("quick"), stub("slow", delay=0.5)]) == 0
    table = capsys.readouterr().out
    assert "slow / quick" in table
    assert table == output.read_text()
    figures = json.loads(output.with_suffix(".json").read_text())["figures"]
    assert figures["first_line"]["ratios"]["slow"] > 2
    assert [len(lane["seconds"]) for lane in figures["help"]["lanes"]] == [2, 2]


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
    assert race.main(["first_line", "--repeat=1", "--timeout=0.5", hanging]) == 0
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


def test_percentiles_are_values_that_were_measured():
    assert race.percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert race.percentile([float(n) for n in range(1, 101)], 0.95) == 95.0
    assert race.percentile([5.0], 0.95) == 5.0


@pytest.mark.full
def test_the_real_contenders_finish_each_kind_of_figure(tmp_path):
    output = tmp_path / "race.md"
    names = ["help", "first_line", "first_step_2", "recover_all_reduce_2", "exit"]
    assert race.main([*names, "--repeat=1", f"--output={output}"]) == 0
    document = json.loads(output.with_suffix(".json").read_text())
    failures = {
        (name, lane["launcher"]): lane["failures"]
        for name, figure in document["figures"].items()
        for lane in figure["lanes"]
        if lane["failures"]
    }
    assert failures == {}
