"""The samples in the run directory: the latest whole, the history small, the disk no danger."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState
from dlrover_cli.telemetry.sample_files import HISTORY_FILE, LIVE_FILE, SampleFiles

RANK = RankSample(
    global_rank=0,
    local_rank=0,
    pid=7,
    state=RankState.RUNNING,
    phase=WorkerPhase.TRAINING,
    steps=10,
    steps_per_second=2.0,
    cpu_percent=50.0,
    memory_bytes=1 << 30,
    last_moved=99.0,
)
SAMPLE = NodeSample(
    time=100.0,
    run_id="run",
    host="here",
    node_rank=0,
    nodes=1,
    world_size=1,
    attempt=0,
    restart_count=0,
    generation=0,
    ended=False,
    ranks=(RANK,),
)


def at(seconds: float, **changes: object) -> NodeSample:
    return replace(SAMPLE, time=100.0 + seconds, ranks=(replace(RANK, **changes),))


@pytest.fixture
def said():
    return []


@pytest.fixture
def in_memory():
    """A directory where thousands of renames do not wait for a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def files(tmp_path, said):
    return SampleFiles(tmp_path, said.append)


def live(tmp_path):
    return json.loads((tmp_path / LIVE_FILE).read_text())


def history(tmp_path):
    return [json.loads(line) for line in (tmp_path / HISTORY_FILE).read_text().splitlines()]


def test_the_latest_sample_is_a_document_of_its_own(files, tmp_path):
    files(SAMPLE)
    document = live(tmp_path)
    assert document["schema_version"] == 1
    assert document["ranks"][0]["state"] == "running"
    assert document["ranks"][0]["phase"] == "training"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_sample_like_the_one_before_is_not_written_again(files, tmp_path):
    files(SAMPLE)
    before = (tmp_path / LIVE_FILE).stat()
    files(at(1, cpu_percent=50.4, memory_bytes=(1 << 30) + 4096, last_moved=99.001))
    assert (tmp_path / LIVE_FILE).stat().st_ino == before.st_ino
    files(at(2, steps=11))
    assert live(tmp_path)["time"] == 102.0


def test_a_quiet_node_gives_a_sign_of_life(files, tmp_path):
    for second in range(12):
        files(at(second))
    assert live(tmp_path)["time"] == 110.0


def test_the_history_has_the_steps_of_every_second_and_the_last_sample(files, tmp_path):
    for second in range(3):
        files(at(second, steps=second))
    files(replace(at(2.1, steps=3, cpu_percent=None, memory_bytes=None), ended=True))
    lines = history(tmp_path)
    assert [line["steps"]["0"] for line in lines] == [0, 1, 2, 3]
    assert [line["ended"] for line in lines] == [False, False, False, True]


def test_samples_between_two_intervals_are_not_kept(files, tmp_path):
    for tenth in range(21):
        files(at(tenth / 10, steps=tenth))
    assert len(history(tmp_path)) == 3


def test_a_run_of_four_weeks_stays_below_a_megabyte(in_memory, said):
    files, path = SampleFiles(in_memory, said.append), in_memory / HISTORY_FILE
    eight = tuple(replace(RANK, global_rank=rank, steps=123_456) for rank in range(8))
    now, end = 100.0, 100.0 + 28 * 86_400
    while now < end:
        files(replace(SAMPLE, time=now, ranks=eight))
        # Nothing is written in between, so there is no need to offer every second.
        now += 2 ** (path.stat().st_size // 65_536)
    assert path.stat().st_size < 1_000_000
    assert len(history(in_memory)) > 3000


def test_a_crash_loop_stays_below_a_megabyte_too(files, tmp_path):
    (tmp_path / HISTORY_FILE).write_bytes(bytes(1_040_000))
    for attempt in range(100):
        files(replace(SAMPLE, attempt=attempt))
        files(replace(SAMPLE, attempt=attempt, ended=True))
    assert (tmp_path / HISTORY_FILE).stat().st_size < 1_100_000


def test_a_run_that_goes_on_later_keeps_its_interval(files, tmp_path, said):
    (tmp_path / HISTORY_FILE).write_text("{}\n" * 50_000)
    again = SampleFiles(tmp_path, said.append)
    for second in range(9):
        again(at(second))
    assert len((tmp_path / HISTORY_FILE).read_text().splitlines()) == 50_000 + 3


def test_a_disk_that_cannot_be_written_costs_one_line(tmp_path, said):
    files = SampleFiles(tmp_path / "gone", said.append)
    files(SAMPLE)
    files(at(1))
    assert len(said) == 1
    assert "dlrover-job top" in said[0]
