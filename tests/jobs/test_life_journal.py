"""The story that events tell, and several writers of one file."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.journal import Bookmark, LifeJournal, read_on, read_story
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity


def opened(path: Path, problems: list[str] | None = None) -> LifeJournal:
    return LifeJournal(path, "run", print if problems is None else problems.append)


def append(journal: LifeJournal, kind: str, **data: Any) -> None:
    with journal.alone():
        journal.append(kind, **data)


def moved(to: RunState) -> dict[str, Any]:
    return {"to": to.value, "reason": f"to {to.value}", "exit_code": None}


def test_a_journal_is_read_again_as_it_was_told(tmp_path: Path) -> None:
    journal = opened(tmp_path / "events.jsonl")
    me = ProcessIdentity.own()
    append(journal, "submitted", by=me.to_json())
    append(journal, "owned", owner=me.to_json())
    append(journal, "state", **moved(RunState.STARTING))
    append(journal, "occurrence", number=1)
    append(journal, "state", **moved(RunState.RUNNING))
    journal.close()
    story = read_story(tmp_path / "events.jsonl")
    assert story == journal.story
    assert (story.state, story.owner, story.submitter) == (RunState.RUNNING, me, me)
    assert story.steps == 4  # the occurrence is a remark
    assert story.started is not None
    assert story.ended is None


@pytest.mark.parametrize("size", [0, 1, 40, 10_000])
def test_reading_on_in_parts_tells_the_same(tmp_path: Path, size: int) -> None:
    path = tmp_path / "events.jsonl"
    journal = opened(path)
    me = ProcessIdentity.own().to_json()
    for kind, data in (
        ("submitted", {"by": me}),
        ("owned", {"owner": me}),
        ("state", moved(RunState.STARTING)),
        ("cleaning", {"by": me}),
    ):
        append(journal, kind, **data)
    journal.close()
    content, bookmark = path.read_bytes(), Bookmark()
    for end in range(0, len(content), size or len(content)):
        path.write_bytes(content[:end])
        bookmark = Bookmark.from_text(read_on(path, bookmark).to_text())
    path.write_bytes(content)
    assert read_on(path, bookmark) == Bookmark(len(content), journal.story)


def test_what_another_writer_wrote_is_seen_before_writing_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first, second = opened(path), opened(path)
    append(first, "state", **moved(RunState.STARTING))
    append(second, "state", **moved(RunState.RUNNING))
    append(first, "state", **moved(RunState.FINISHED))
    first.close()
    second.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert first.story.state is RunState.FINISHED
    assert second.story.state is RunState.RUNNING  # as of its last look


def test_a_torn_last_line_is_not_read_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    journal = opened(path)
    append(journal, "state", **moved(RunState.STARTING))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert read_story(path).state is RunState.STARTING
    again = opened(path)
    assert again.story.state is RunState.STARTING
    assert path.read_bytes() == whole + whole[: len(whole) // 2]  # looking changes nothing
    append(again, "state", **moved(RunState.RUNNING))
    again.close()
    assert again.story.state is read_story(path).state is RunState.RUNNING


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n",
        b"5\n",
        b"[]\n",
        b"{}\n",
        b'{"kind": "state", "data": {"to": "DANCING"}, "time": 1}\n',
        b'{"kind": "state", "data": {"to": "FINISHED"}, "time": 1}\n',
        b'{"kind": "state", "data": null, "time": 1}\n',
        b'{"kind": "state", "data": {"to": "STARTING"}, "time": "noon"}\n',
        b'{"kind": "owned", "data": {"owner": 7}, "time": 1}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_that_tells_nothing_is_passed_by(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line)
    journal = opened(path)
    assert journal.story == Story()
    append(journal, "state", **moved(RunState.STARTING))
    journal.close()
    assert read_story(path).steps == 1


def test_a_run_that_waits_again_has_to_be_cleaned_up_again() -> None:
    story = Story(state=RunState.STOPPING, is_cleaned=True, started=1.0)
    event = {"kind": "state", "data": moved(RunState.PENDING), "time": 2.0}
    again = story.after(event)
    assert not again.is_cleaned
    assert again.started is None


def test_a_run_has_started_when_its_event_says_that_it_did() -> None:
    told = {"kind": "state", "data": {"to": "STARTING", "since": 5.0}, "time": 7.0}
    assert Story().after(told).started == 5.0
    assert Story().after({**told, "data": {"to": "STARTING"}}).started == 7.0


def test_a_lost_run_that_is_stopped_has_not_ended_yet() -> None:
    lost = Story(state=RunState.RUNNING, started=1.0).moved(RunState.LOST, "", None, 2.0)
    assert lost is not None
    assert lost.ended == 2.0
    stopping = lost.moved(RunState.STOPPING, "", None, 3.0)
    assert stopping is not None
    assert (stopping.started, stopping.ended) == (1.0, None)


def test_a_journal_that_cannot_be_written_costs_one_line_and_the_story_goes_on(
    tmp_path: Path,
) -> None:
    problems: list[str] = []
    journal = opened(tmp_path / "missing" / "events.jsonl", problems)
    append(journal, "state", **moved(RunState.STARTING))
    append(journal, "state", **moved(RunState.RUNNING))
    journal.close()
    assert journal.story.state is RunState.RUNNING
    assert len(problems) == 1
    assert "cannot write events" in problems[0]


def test_threads_take_turns(tmp_path: Path) -> None:
    journal = opened(tmp_path / "events.jsonl")
    threads = [
        threading.Thread(target=lambda: [append(journal, "note") for _ in range(25)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 101))


def test_the_file_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        opened(tmp_path / "events.jsonl").close()
    finally:
        os.umask(before)
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600
