"""The run directory and the journal: private, whole or not at all, and never in the job's way."""

import json
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dlrover_cli.errors import LaunchError
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.run_dir import (
    create_run_directory,
    new_run_id,
    state_directory,
    write_json_atomically,
)
from tests.harness.waiting import eventually


@pytest.fixture
def lines():
    """What was said on stderr."""
    return []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


# ---- where runs are kept -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({"XDG_STATE_HOME": "/state"}, Path("/state/dlrover")),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/dlrover"),
        ({}, Path.home() / ".local/state/dlrover"),
    ],
)
def test_the_state_directory_follows_xdg(environ, expected):
    assert state_directory(environ) == expected


def test_a_run_is_private_and_has_its_places(tmp_path, lines):
    run = create_run_directory({"XDG_STATE_HOME": str(tmp_path)}, lines.append)
    assert run.path == tmp_path / "dlrover" / "runs" / run.run_id
    for path in (run.path, run.node, run.logs, run.node / "failures"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert run.events.parent == run.node
    assert lines == []


def test_run_ids_are_unique_and_sort_by_time():
    assert len({new_run_id(0.0) for _ in range(100)}) > 95
    assert new_run_id(1_000_000_000) < new_run_id(1_700_000_000)


def test_an_unwritable_state_directory_falls_back_in_one_line(tmp_path, lines, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "file").touch()
    run = create_run_directory({"XDG_STATE_HOME": str(tmp_path / "file")}, lines.append)
    assert run.path.is_dir()
    assert len(lines) == 1
    assert "Not a directory" in lines[0]
    assert str(run.path.parent.parent) in lines[0]


def test_without_any_directory_there_is_a_sentence(tmp_path, lines, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(LaunchError, match="no directory can be made for the run") as caught:
        create_run_directory({"XDG_STATE_HOME": str(tmp_path / "file")}, lines.append)
    assert "XDG_STATE_HOME" in caught.value.hint


# ---- documents ---------------------------------------------------------------------------------


def test_a_document_is_replaced_in_one_piece(tmp_path):
    path = tmp_path / "result.json"
    write_json_atomically(path, {"old": True})
    stop = threading.Event()
    seen, broken = 0, []

    def read():
        nonlocal seen
        while not stop.is_set():
            try:
                json.loads(path.read_text())
            except ValueError as error:
                broken.append(error)
            seen += 1

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        write_json_atomically(path, {"number": number, "filler": "x" * 10_000})
    eventually(lambda: seen > 10)
    stop.set()
    reader.join()
    assert broken == []
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_document_that_cannot_be_written_is_a_line_and_leaves_the_old_one(small_disk, lines):
    run = create_run_directory({"XDG_STATE_HOME": str(small_disk)}, lines.append)
    assert run.write_document("result.json", {"kept": True}) is not None
    (small_disk / "filler").write_bytes(bytes(40_000))
    assert run.write_document("result.json", {"text": "x" * 60_000}) is None
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert json.loads((run.path / "result.json").read_text()) == {"kept": True}
    assert [path.name for path in run.path.iterdir() if path.name.startswith(".")] == []


def test_whatever_is_in_a_document_becomes_plain_data(tmp_path):
    path = tmp_path / "document.json"
    content = {
        "none": None,
        "set": {1},
        "bytes": b"\xff",
        "surrogate": "\udcff",
        1: "key",
        "object": object(),
    }
    write_json_atomically(path, content)
    read = json.loads(path.read_text())
    assert (read["none"], read["set"], read["1"]) == (None, [1], "key")
    assert set(read) == {"none", "set", "bytes", "surrogate", "1", "object"}


def test_failures_are_numbered(tmp_path, lines):
    run = create_run_directory({"XDG_STATE_HOME": str(tmp_path)}, lines.append)
    path = run.write_failure(2, {"kind": "exit"})
    assert path == run.node / "failures" / "2.json"


# ---- the journal -------------------------------------------------------------------------------


def events_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_event_has_its_number_its_time_and_its_data(tmp_path, lines):
    log = EventLog(tmp_path / "events.jsonl", "run", lines.append)
    log.record("started", pid=1, path="/x")
    log.node_rank, log.attempt = 2, 3
    log.record("failed", text="a\nb\udcff")
    log.close()
    first, second = events_in(tmp_path / "events.jsonl")
    assert (first["seq"], first["kind"], first["node_rank"], first["run_id"]) == (
        1,
        "started",
        None,
        "run",
    )
    assert first["data"] == {"pid": 1, "path": "/x"}
    assert (second["seq"], second["node_rank"], second["attempt"]) == (2, 2, 3)
    assert second["time"] >= first["time"]
    assert second["schema_version"] == 1
    assert lines == []


def test_events_of_many_threads_are_whole_and_numbered_without_a_gap(tmp_path, lines):
    log = EventLog(tmp_path / "events.jsonl", "run", lines.append)

    def record(name):
        for number in range(200):
            log.record("event", name=name, number=number, filler="x" * number)

    threads = [threading.Thread(target=record, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert [event["seq"] for event in events_in(tmp_path / "events.jsonl")] == list(range(1, 1601))


def test_events_after_the_end_are_dropped(tmp_path, lines):
    log = EventLog(tmp_path / "events.jsonl", "run", lines.append)
    log.close()
    log.close()
    log.record("late")
    assert (tmp_path / "events.jsonl").read_text() == ""


def test_a_journal_that_cannot_be_opened_costs_one_line(tmp_path, lines):
    log = EventLog(tmp_path / "missing" / "events.jsonl", "run", lines.append)
    log.record("started")
    log.record("finished")
    log.close()
    assert len(lines) == 1
    assert "going on without" in lines[0]


def test_a_full_disk_costs_one_line_and_no_half_event(small_disk, lines):
    path = small_disk / "events.jsonl"
    log = EventLog(path, "run", lines.append)
    for number in range(2000):
        log.record("event", number=number, filler="x" * 77)
    log.close()
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    events = events_in(path)  # each line is whole
    assert [event["data"]["number"] for event in events] == list(range(len(events)))


def test_a_disk_that_has_room_again_does_not_get_half_a_journal(small_disk, lines):
    """Space may come and go: what was cut off must not be glued to what follows."""
    path = small_disk / "events.jsonl"
    filler = small_disk / "filler"
    log = EventLog(path, "run", lines.append)
    log.record("first")
    filler.write_bytes(bytes(60_000))
    for _ in range(100):
        log.record("event", filler="x" * 77)
    filler.unlink()
    log.record("last")
    log.close()
    events_in(path)


def test_a_journal_is_not_inherited(tmp_path, lines):
    log = EventLog(tmp_path / "events.jsonl", "run", lines.append)
    code = "import os; print(os.listdir('/proc/self/fd'))"
    seen = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        close_fds=False,
    )
    assert repr(str(log._fd)) not in seen.stdout
    log.close()


# ---- those who listen ----------------------------------------------------------------------------


def test_a_listener_sees_what_the_journal_keeps(tmp_path, lines):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, "run", lines.append)
    heard = []
    log.subscribe(heard.append)
    log.record("failure", ranks=[1])
    log.record("decision", path=Path("a"))
    log.close()
    log.record("too_late")
    assert heard == [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["kind"] for event in heard] == ["failure", "decision"]


def test_a_listener_that_raises_costs_neither_the_journal_nor_the_others_anything(tmp_path, lines):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, "run", lines.append)
    heard = []
    log.subscribe(lambda event: 1 / 0)
    log.subscribe(heard.append)
    log.record("failure")
    log.close()
    assert len(heard) == len(path.read_text().splitlines()) == 1


def test_listeners_hear_what_cannot_be_kept(tmp_path, lines):
    log = EventLog(tmp_path / "missing" / "events.jsonl", "run", lines.append)
    heard = []
    log.subscribe(heard.append)
    log.record("failure")
    assert [event["kind"] for event in heard] == ["failure"]
