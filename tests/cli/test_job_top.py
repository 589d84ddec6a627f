"""`dlrover-job top`: every rank of a run, the odd ones first, once or until somebody leaves."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.cli.top_picture import Picture, folded, picture_of
from dlrover_cli.cli.top_view import facts_of, fitting, rank_cells
from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState
from tests.cli.program import run_python
from tests.cli.runs import Runs, dead_process
from tests.diagnosis.journals import START, Journals, one_restart
from tests.harness.launcher import Finished, Running

NOW = START + 1000


def rank(number: int, **changes: Any) -> RankSample:
    usual = RankSample(
        number,
        number,
        1000 + number,
        RankState.RUNNING,
        WorkerPhase.TRAINING,
        500,
        2.0,
        99.0,
        3 << 30,
        NOW - 0.5,
    )
    return replace(usual, **changes)


def node(*ranks: RankSample, time: float = NOW - 1, **changes: Any) -> NodeSample:
    usual = NodeSample(time, "run", "a", 0, 1, len(ranks), 1, 1, 0, False, ranks)
    return replace(usual, **changes)


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., Picture]:
    """The picture of a run that has restarted once and goes on."""

    def take(state: RunState = RunState.RUNNING, **samples: NodeSample) -> Picture:
        journals = Journals(tmp_path)
        one_restart(journals)
        return picture_of(journals.story(state), samples, NOW)

    return take


def remarks(picture: Picture) -> dict[int, str]:
    return {each.rank.global_rank: each.remark for each in picture.ranks if each.remark}


# ---- what is odd -------------------------------------------------------------------------------


def test_ranks_like_all_others_get_no_remark(picture: Callable[..., Picture]) -> None:
    taken = picture(a=node(rank(0), rank(1, steps=498)))
    assert remarks(taken) == {}
    assert (taken.steps, taken.steps_per_second) == (500, 2.0)


@pytest.mark.parametrize(
    "changes, remark",
    [
        ({"steps": 400}, "100 steps behind"),
        ({"steps_per_second": 1.0}, "slow: 50% of the usual rate"),
        ({"last_moved": NOW - 95}, "quiet for 1m 35s"),
        ({"at_prompt": True, "steps": 1}, "at a debugger's prompt"),
        ({"phase": WorkerPhase.START_UP, "steps_per_second": None}, "still starting"),
    ],
)
def test_a_rank_unlike_the_others_gets_a_remark(
    picture: Callable[..., Picture], changes: dict[str, Any], remark: str
) -> None:
    taken = picture(a=node(rank(0), rank(1), rank(2, **changes)))
    assert remarks(taken) == {2: remark}


def test_a_slow_training_is_not_quiet_between_its_steps(picture: Callable[..., Picture]) -> None:
    slow = {"steps_per_second": 1 / 40, "last_moved": NOW - 60}
    assert remarks(picture(a=node(rank(0, **slow), rank(1, **slow)))) == {}


def test_a_node_that_is_not_heard_of_is_named(picture: Callable[..., Picture]) -> None:
    gone = node(rank(1), time=NOW - 60, host="b", node_rank=1)
    taken = picture(a=node(rank(0)), b=gone)
    assert remarks(taken) == {1: "nothing is heard of its node"}
    assert dict(facts_of(taken))["Silent"].text == "nothing heard of b for 1m"


def test_nodes_of_an_earlier_attempt_are_not_shown(picture: Callable[..., Picture]) -> None:
    taken = picture(a=node(rank(0)), old=node(rank(1), attempt=0))
    assert [each.rank.global_rank for each in taken.ranks] == [0]


def test_what_fits_is_shown_in_order(picture: Callable[..., Picture]) -> None:
    taken = picture(a=node(rank(0), rank(1, steps=1), rank(2)))
    shown, others = folded(taken.ranks, 3)
    assert [each.rank.global_rank for each in shown] == [0, 1, 2]
    assert others == ""


def test_on_a_narrow_screen_the_numbers_of_the_training_are_not_cut(
    picture: Callable[..., Picture],
) -> None:
    taken = picture(a=node(rank(0), rank(1, steps=400)))
    rows = [rank_cells(each, NOW) for each in taken.ranks]

    def headings(width: int | None) -> str:
        return " ".join(column.heading for column in fitting(rows, width)[0])

    everything = "Rank Node Pid State Step Steps/s CPU Memory Moved Remark"
    assert headings(None) == headings(200) == everything
    assert headings(60) == "Rank Node State Step Steps/s Moved Remark"
    assert fitting(rows, 60)[1][1][-1].text == "100 steps behind"


def test_of_many_ranks_the_odd_ones_are_shown_and_the_rest_folded(
    picture: Callable[..., Picture],
) -> None:
    odd = {77: {"steps": 3}, 200: {"state": RankState.FAILED}, 300: {"steps": 2}}
    ranks = [rank(number, **odd.get(number, {})) for number in range(512)]
    shown, others = folded(picture(a=node(*ranks)).ranks, 8)
    assert [each.rank.global_rank for each in shown[:3]] == [300, 77, 200]
    assert len(shown) == 7
    assert others == "505 more ranks running, steps 500 to 500, 2.0 to 2.0 steps/s, 3.0 GiB each"


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def going_on(runs: Runs) -> Callable[..., Path]:
    """A run of two ranks; gives the file of its samples."""

    def make(state: RunState = RunState.RUNNING, **options: Any) -> Path:
        files = runs.add(state=state, submitted=time.time() - 60, **options)
        sample = node(rank(0), rank(1, steps=500), time=time.time(), run_id=files.run_id)
        path = files.nodes / "vm.1" / "live.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"schema_version": 1, **asdict(sample)}))
        return path

    return make


def test_a_snapshot_is_printed_where_there_is_no_terminal(
    going_on: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    going_on()
    assert main(["top"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("State    RUNNING, for ")
    assert "Attempt  1, 2 ranks on 1 node, 1 restart charged" in lines
    assert "Speed    step 500, 2.0 steps/s" in lines
    assert [line.split()[:6] for line in lines[-3:]] == [
        ["RANK", "NODE", "PID", "STATE", "STEP", "STEPS/S"],
        ["0", "a", "1000", "training", "500", "2.0"],
        ["1", "a", "1001", "training", "500", "2.0"],
    ]


def test_a_run_that_is_over_says_so(
    going_on: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    going_on(RunState.FAILED, exit_code=3, reason="it broke")
    assert main(["top"]) == 0
    assert "FAILED, exit 3: it broke, took 0.0s; the run is over" in capsys.readouterr().out


def test_a_run_whose_launcher_was_killed_is_over_and_silent(
    going_on: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    going_on(owner=dead_process())
    assert main(["top"]) == 0
    out = capsys.readouterr().out
    assert "LOST" in out
    assert "up to its last event; the run is over" in out  # when it was killed, nobody knows
    assert "Silent   nothing heard of a for" in out


def test_a_run_without_samples_says_that_nothing_is_known(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.add(engine="cmd_line")
    assert main(["top"]) == 0
    assert "it has left no samples" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"ranks": [{}]}', '{"ranks": 3}'])
def test_a_damaged_sample_is_none(
    going_on: Callable[..., Path], content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    going_on().write_text(content)
    assert main(["top"]) == 0
    assert "nothing is known about its workers yet" in capsys.readouterr().err


def test_what_a_later_version_adds_is_passed_over(
    going_on: Callable[..., Path], document: Callable[..., Any]
) -> None:
    path = going_on()
    sample = json.loads(path.read_text())
    sample["more"] = sample["ranks"][0]["more"] = 1
    path.write_text(json.dumps(sample))
    found = document("top")
    assert [each["global_rank"] for each in found["ranks"]] == [0, 1]
    assert found["run"]["state"] == "RUNNING"
    assert found["nodes"][0]["is_stale"] is False


def test_it_needs_no_torch(going_on: Callable[..., Path], runs: Runs) -> None:
    going_on()
    code = (
        "import sys; from dlrover_cli.cli.job import main; main(['top']); "
        "print('torch' in sys.modules)"
    )
    finished = run_python("-c", code, XDG_STATE_HOME=str(runs.state.parent))
    assert finished.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    "key",
    [pytest.param(b"q", id="q"), pytest.param(b"\x03", id="Ctrl-C", marks=pytest.mark.full)],
)
def test_on_a_terminal_it_goes_on_until_somebody_leaves(
    key: bytes, going_on: Callable[..., Path], start_job: Callable[..., Running]
) -> None:
    path = going_on()
    running = start_job("top", tty=True, size=(24, 100), env={"TERM": "xterm"})
    running.wait_for("q leaves")
    sample = json.loads(path.read_text())
    sample["ranks"][1]["steps"] = 123_456
    path.write_text(json.dumps(sample))
    running.wait_for("123,456")
    running.type(key)
    finished: Finished = running.finish()
    assert finished.returncode == 0
    assert finished.stdout.rstrip().endswith("\033[?25h\033[?1049l")  # all is as before


@pytest.mark.full
def test_ctrl_z_gives_the_screen_back_and_sigterm_too(
    going_on: Callable[..., Path], start_job: Callable[..., Running]
) -> None:
    going_on()
    running = start_job("top", tty=True, size=(24, 100), env={"TERM": "xterm"})
    before = running.terminal_modes()
    running.wait_for("q leaves")
    running.signal(signal.SIGTSTP)
    running.wait_for("\033[?25h\033[?1049l")
    running.signal(signal.SIGCONT)
    running.wait_for(lambda r: r.stdout.rpartition("\033[?1049h")[0].endswith("\033[?1049l"))
    running.wait_for(lambda r: "q leaves" in r.stdout.rpartition("\033[?1049h")[2])
    running.signal(signal.SIGTERM)
    assert running.poll(30) == 143
    assert running.terminal_modes() == before
    assert running.finish().stdout.rstrip().endswith("\033[?25h\033[?1049l")


def test_a_screen_without_room_for_a_rank_has_the_headings() -> None:
    columns, rows = fitting([], 80)
    assert columns[0].heading == "Rank"
    assert rows == []
