"""Healing: rows from directories, rows that catch up, and runs whose process is gone."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs import healing
from dlrover_cli.jobs.healing import GRACE_SECONDS, heal
from dlrover_cli.jobs.journal import Bookmark, read_story
from dlrover_cli.jobs.ledger import Ledger, UnknownRun
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.jobs.runs import document, elsewhere, ended_process, move_to, new_run, reused_pid, row

ACTIVE = [RunState.PENDING, RunState.STARTING, RunState.RUNNING, RunState.STOPPING]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "dlrover"


@pytest.fixture
def ledger(state: Path) -> Ledger:
    return Ledger.open(state)


def restarted_host() -> ProcessIdentity:
    return replace(ProcessIdentity.own(), boot_id="another-boot")


def test_nothing_is_no_problem(state: Path, ledger: Ledger) -> None:
    heal(ledger, state)
    assert ledger.rows() == []


@pytest.mark.parametrize("now", RunState)
def test_a_run_without_a_row_gets_one(state: Path, ledger: Ledger, now: RunState) -> None:
    record = new_run(state, "r1", None)
    record.own(ProcessIdentity.own())
    move_to(record, now)
    heal(ledger, state)
    assert ledger.row("r1") == record.row
    assert ledger.row("r1").state is now


def test_a_run_in_the_foreground_appears_though_it_knows_no_ledger(
    state: Path, ledger: Ledger
) -> None:
    files = RunFiles.of(state, "r1")
    files.path.mkdir(parents=True)
    files.job.write_text(json.dumps(document("r1", argv=("train.py",)).to_json()))
    life = EventLog(files.events, "r1", print)
    life.record("owned", owner=ProcessIdentity.own().to_json())
    life.record("state", to="STARTING", reason="", exit_code=None)
    life.record("state", to="RUNNING", reason="", exit_code=None)
    heal(ledger, state)
    assert ledger.row("r1").state is RunState.RUNNING
    life.record("state", to="FAILED", reason="no luck", exit_code=3)
    heal(ledger, state)
    assert ledger.row("r1").state is RunState.FAILED
    assert (ledger.row("r1").reason, ledger.row("r1").exit_code) == ("no luck", 3)


@pytest.mark.parametrize("now", ACTIVE)
@pytest.mark.parametrize(
    "owner, why",
    [
        (ended_process, "is gone without a word"),
        (reused_pid, "is gone without a word"),
        (restarted_host, "was restarted"),
    ],
)
def test_a_run_whose_owner_is_gone_is_lost_in_its_events_too(
    state: Path,
    ledger: Ledger,
    now: RunState,
    owner: Callable[[], ProcessIdentity],
    why: str,
) -> None:
    record = new_run(state, "r1", ledger)
    record.own(owner())
    move_to(record, now)
    heal(ledger, state)
    lost = ledger.row("r1")
    assert lost.state is RunState.LOST
    assert why in lost.reason
    assert lost.ended is not None
    assert record.refresh().state is RunState.LOST
    heal(ledger, state)
    assert record.refresh().steps == ledger.row("r1").steps == lost.steps


@pytest.mark.parametrize("owner", [ProcessIdentity.own, elsewhere])
def test_a_run_whose_owner_lives_or_may_live_is_left_alone(
    state: Path, ledger: Ledger, owner: Callable[[], ProcessIdentity]
) -> None:
    record = new_run(state, "r1", ledger)
    record.own(owner())
    move_to(record, RunState.RUNNING)
    heal(ledger, state, now=lambda: record.document.submitted + 1e9)
    assert ledger.row("r1").state is RunState.RUNNING


SUBMITTED = 1_000_000.0


def submitted_by(state: Path, submitter: ProcessIdentity | None, run_id: str = "r1") -> RunFiles:
    """A run that nobody owns."""
    files = RunFiles.of(state, run_id)
    files.path.mkdir(parents=True)
    files.job.write_text(json.dumps(document(run_id, submitted=SUBMITTED).to_json()))
    if submitter is not None:
        log = EventLog(files.events, run_id, print)
        log.record("submitted", by=submitter.to_json())
        log.close()
    return files


@pytest.mark.parametrize(
    "submitter, why",
    [
        (ended_process, "ended while it submitted the run"),
        (restarted_host, "was restarted"),
        (lambda: None, "nobody took it over"),  # its first event is yet to be written
    ],
)
def test_a_run_that_nobody_owns_is_lost_when_its_submitter_is(
    state: Path, ledger: Ledger, submitter: Callable[[], ProcessIdentity | None], why: str
) -> None:
    files = submitted_by(state, submitter())
    heal(ledger, state, now=lambda: SUBMITTED + GRACE_SECONDS - 1)
    assert ledger.row("r1").state is RunState.PENDING
    heal(ledger, state, now=lambda: SUBMITTED + GRACE_SECONDS + 1)
    assert ledger.row("r1").state is RunState.LOST
    assert why in ledger.row("r1").reason
    assert read_story(files.events).state is RunState.LOST


@pytest.mark.parametrize("submitter", [ProcessIdentity.own, elsewhere])
def test_a_run_that_nobody_owns_waits_for_its_submitter(
    state: Path, ledger: Ledger, submitter: Callable[[], ProcessIdentity]
) -> None:
    submitted_by(state, submitter())
    heal(ledger, state, now=lambda: SUBMITTED + 1e9)
    assert ledger.row("r1").state is RunState.PENDING


def test_an_owner_that_comes_meanwhile_saves_the_run(
    state: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the run and the word that it is lost, somebody takes it over."""
    record = new_run(state, "r1", ledger)
    record.own(ended_process())
    original = healing._lost

    def late(*args: object) -> object:
        record.own(ProcessIdentity.own())
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(healing, "_lost", late)
    heal(ledger, state)
    assert record.refresh().state is RunState.PENDING
    assert ledger.row("r1").state is RunState.PENDING


def test_directories_that_are_no_runs_break_nothing(state: Path, ledger: Ledger) -> None:
    runs = state / "runs"
    new_run(state, "good", None).own(ProcessIdentity.own())
    for name in ("empty", ".staged", "unreadable", "broken-job", "other-id", "broken-events"):
        (runs / name).mkdir()
    (runs / "a-file").touch()
    (runs / "dangling").symlink_to("nowhere")
    shutil.copytree(runs / "good", runs / ".removed-good")
    (runs / "unreadable" / "job.json").mkdir()
    (runs / "broken-job" / "job.json").write_text("{")
    shutil.copy(runs / "good" / "job.json", runs / "other-id")
    (runs / "broken-events" / "job.json").write_text(
        json.dumps(document("broken-events").to_json())
    )
    (runs / "broken-events" / "events.jsonl").mkdir()
    heal(ledger, state)
    heal(ledger, state)
    assert ledger.run_ids() == {"good"}
    assert (runs / "empty").exists()


def test_what_a_killed_submitter_left_half_made_is_taken_away(state: Path, ledger: Ledger) -> None:
    submitted_by(state, ended_process(), "left")
    submitted_by(state, ProcessIdentity.own(), "being-made")
    for name in ("left", "being-made"):
        RunFiles.of(state, name).job.unlink()
    heal(ledger, state)
    assert [path.name for path in (state / "runs").iterdir()] == ["being-made"]


def test_a_run_that_becomes_unreadable_keeps_its_row(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    record.own(ended_process())
    record.files.job.write_text("{")
    heal(ledger, state)
    found = ledger.row("r1")
    assert (found.state, found.name) == (RunState.LOST, "train")
    assert read_story(record.files.events).state is RunState.LOST


def test_the_row_of_a_directory_that_is_gone_goes_unless_its_owner_lives(
    state: Path, ledger: Ledger
) -> None:
    for name, owner in (("gone", ended_process()), ("alive", ProcessIdentity.own())):
        record = new_run(state, name, ledger)
        record.own(owner)
        shutil.rmtree(record.files.path)
    ledger.add(row(state, "never-there"))
    heal(ledger, state)
    assert ledger.run_ids() == {"alive"}


def test_an_end_is_read_once_and_looked_at_again_when_somebody_cleans_up(
    state: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = new_run(state, "r1", ledger)
    record.own(ended_process())
    move_to(record, RunState.FAILED)
    heal(ledger, state)
    assert ledger.unsettled() == []
    size = ledger.row("r1").size
    assert size is not None
    assert size > 0
    with monkeypatch.context() as patched:
        patched.setattr(healing, "read_on", lambda *args: pytest.fail("nothing to read"))
        heal(ledger, state)
    with RunRecord.open(record.files, ledger, print).cleaning() as is_due:
        assert is_due
        assert [each.run_id for each in ledger.unsettled()] == ["r1"]
    heal(ledger, state)
    assert ledger.unsettled() == []
    assert ledger.row("r1").is_cleaned


def test_a_run_that_ended_and_is_not_cleaned_is_watched_while_its_owner_lives(
    state: Path, ledger: Ledger
) -> None:
    record = new_run(state, "r1", None)
    record.own(ProcessIdentity.own())
    move_to(record, RunState.FINISHED)
    heal(ledger, state)
    with record.cleaning():
        pass
    heal(ledger, state)
    assert ledger.row("r1").is_cleaned


def test_healing_at_once_by_two_tells_one_loss(state: Path, ledger: Ledger) -> None:
    for number in range(20):
        new_run(state, f"r{number}", ledger).own(ended_process())
    children = []
    ledger.close()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Ledger.open(state) as own:
                    heal(own, state)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    for number in range(20):
        told = RunFiles.of(state, f"r{number}").events.read_text()
        assert told.count('"LOST"') == 1
        assert ledger.row(f"r{number}").state is RunState.LOST


def test_a_run_removed_while_it_is_healed_is_forgotten_at_last(
    state: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = new_run(state, "r1", None)
    record.own(ended_process())
    original = Ledger.add_all

    def removed_meanwhile(self: Ledger, rows: object) -> None:
        shutil.rmtree(record.files.path)
        original(self, rows)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_all", removed_meanwhile)
        heal(ledger, state)
    heal(ledger, state)
    with pytest.raises(UnknownRun):
        ledger.row("r1")


def test_a_long_story_is_read_on_where_somebody_stopped(
    state: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = new_run(state, "r1", ledger)
    record.own(ProcessIdentity.own())
    for number in range(100):
        record.note("occurrence", number=number, reason="x" * 1000)
        for to in (RunState.STARTING, RunState.RUNNING, RunState.STOPPING, RunState.PENDING):
            record.move(to)
    heal(ledger, state)
    size = record.files.events.stat().st_size
    read_from = []
    original = healing.read_on

    def watched(path: Path, bookmark: Bookmark) -> Bookmark:
        read_from.append(bookmark.offset)
        return original(path, bookmark)

    monkeypatch.setattr(healing, "read_on", watched)
    heal(ledger, state)
    assert read_from == [size]
    foreground = EventLog(record.files.events, "r1", print)
    foreground.record("state", to="STARTING", reason="once more", exit_code=None)
    foreground.close()
    heal(ledger, state)
    assert read_from == [size, size]
    assert record.refresh().state is RunState.STARTING
    assert ledger.row("r1") == record.row
    assert ledger.row("r1").reason == "once more"


def test_a_story_that_got_shorter_is_read_from_its_beginning(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    record.own(ProcessIdentity.own())
    ledger.set_bookmark("r1", Bookmark(1 << 30, Story(steps=99)).to_text())
    heal(ledger, state)
    assert ledger.row("r1") == record.row
