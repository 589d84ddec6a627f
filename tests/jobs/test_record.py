"""The record of a run: the event first, then the ledger, and nothing that the run could lose."""

import fcntl
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import IllegalTransition, RunState
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.ledger_file import LedgerError
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles, read_job_document
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.jobs.runs import document, elsewhere, ended_process, move_to, new_run, reused_pid


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "dlrover"


@pytest.fixture
def ledger(state: Path) -> Ledger:
    return Ledger.open(state)


def reopened(record: RunRecord, ledger: Ledger | None) -> RunRecord:
    return RunRecord.open(record.files, ledger, print)


def kinds(record: RunRecord) -> list[str]:
    return [json.loads(line)["kind"] for line in record.files.events.read_text().splitlines()]


def test_a_job_document_comes_back_as_it_was(tmp_path: Path) -> None:
    full = document(
        "r1",
        after=("a", "b"),
        queue="q",
        priority=5,
        plugin={"entry_point": "x"},
        job={"__class__": "m::C", "deep": [{"er": None}]},
        argv=("-x", "y"),
    )
    for each in (full, document("r2")):
        path = tmp_path / "job.json"
        path.write_text(json.dumps({**each.to_json(), "of_a_later_version": 1}))
        assert read_job_document(path) == each
        assert JobDocument.from_json(each.to_json()) == each


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        json.dumps({**document("r").to_json(), "schema_version": 99}).encode(),
        json.dumps({**document("r").to_json(), "submitted": "noon"}).encode(),
        json.dumps({**document("r").to_json(), "plugin": 5}).encode(),
    ],
)
def test_a_job_document_that_is_none_is_told_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(content)
    with pytest.raises(LaunchError, match=r"job\.json"):
        read_job_document(path)


def test_the_ledger_says_what_the_events_say(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    assert ledger.row("r1") == record.row
    record.own(ProcessIdentity.own())
    for to in (RunState.STARTING, RunState.RUNNING):
        record.move(to)
        assert ledger.row("r1") == record.row
    record.note("occurrence", number=0)
    record.move(RunState.FAILED, reason="no luck", exit_code=3)
    with record.cleaning() as is_due:
        assert is_due
    record.close()
    assert ledger.row("r1") == record.row == reopened(record, None).row
    assert (record.row.reason, record.row.exit_code) == ("no luck", 3)
    assert record.row.is_cleaned
    told = "submitted owned state state occurrence state cleaning cleaned"
    assert kinds(record) == told.split()


def test_an_illegal_change_writes_nothing(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    before = record.files.events.read_bytes()
    with pytest.raises(IllegalTransition, match="is PENDING and cannot become FINISHED"):
        record.move(RunState.FINISHED)
    assert record.files.events.read_bytes() == before
    assert ledger.row("r1").state is RunState.PENDING


def test_what_another_process_has_written_counts(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    other = reopened(record, ledger)
    other.move(RunState.STOPPING)
    with pytest.raises(IllegalTransition, match="is STOPPING and cannot become STARTING"):
        record.move(RunState.STARTING)
    assert record.state is RunState.STOPPING
    other.move(RunState.KILLED)
    assert record.refresh().state is RunState.KILLED


def test_a_condition_is_asked_with_what_others_have_written(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    reopened(record, ledger).own(elsewhere())
    assert not record.own(ProcessIdentity.own(), when=lambda story: story.owner is None)
    assert not record.move(RunState.LOST, when=lambda story: story.owner is None)
    assert record.story.owner == elsewhere()
    assert record.own(ProcessIdentity.own(), when=lambda story: story.owner == elsewhere())


def test_nobody_else_writes_between_the_question_and_the_event(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    with open(record.files.events) as another_process:

        def is_alone(story: Story) -> bool:
            with pytest.raises(BlockingIOError):
                fcntl.flock(another_process, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True

        assert record.own(ProcessIdentity.own(), when=is_alone)
        assert record.move(RunState.STARTING, when=is_alone)
        fcntl.flock(another_process, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_opening_tells_the_ledger_what_it_has_missed(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", None)
    move_to(record, RunState.RUNNING)
    reopened(record, ledger)
    assert ledger.row("r1") == record.row


def test_a_ledger_that_cannot_be_written_costs_a_line_and_not_the_run(state: Path) -> None:
    problems: list[str] = []
    ledger = Ledger.open(state)
    record = new_run(state, "r1", ledger, problems)

    def fail(*args: object, **kwargs: object) -> None:
        raise LedgerError("the disk is full")

    with pytest.MonkeyPatch.context() as patched:
        for name in ("keep", "transition", "claim_cleanup", "release_cleanup"):
            patched.setattr(ledger, name, fail)
        record.own(ProcessIdentity.own())
        move_to(record, RunState.RUNNING)
    assert problems == ["the disk is full; run r1 goes on without it"]
    assert ledger.row("r1").state is RunState.PENDING
    record.move(RunState.FINISHED)  # there is room again, and the row catches up with all of it
    assert ledger.row("r1") == record.row
    assert record.row.started is not None


def test_cleaning_works_without_a_ledger(state: Path) -> None:
    record = new_run(state, "r1", None)
    with record.cleaning() as is_due:
        assert is_due
    with reopened(record, None).cleaning() as is_due:
        assert not is_due


def test_cleaning_that_failed_is_due_again(state: Path, ledger: Ledger) -> None:
    record = new_run(state, "r1", ledger)
    claims = []

    def fail() -> None:
        with record.cleaning() as is_due:
            claims.append(is_due)
            raise OSError("no luck")

    with pytest.raises(OSError, match="no luck"):
        fail()
    assert claims == [True]
    assert not ledger.row("r1").is_cleaned
    other = reopened(record, ledger)
    with other.cleaning() as is_due:
        assert is_due
        with record.cleaning() as is_due_too:
            assert not is_due_too
    assert ledger.row("r1").is_cleaned
    with record.cleaning() as is_due:
        assert not is_due


@pytest.mark.parametrize(
    "make_cleaner, is_succeeded", [(ended_process, True), (reused_pid, True), (elsewhere, False)]
)
@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_cleaner_that_has_died_is_succeeded(
    state: Path,
    ledger: Ledger,
    make_cleaner: Callable[[], ProcessIdentity],
    is_succeeded: bool,
    has_ledger: bool,
) -> None:
    """Nobody knows whether one on another host has."""
    record = new_run(state, "r1", ledger)
    cleaner = make_cleaner()
    record.note("cleaning", by=cleaner.to_json())
    ledger.keep(record.row)
    assert ledger.claim_cleanup("r1", cleaner)
    with reopened(record, ledger if has_ledger else None).cleaning() as is_due:
        assert is_due is is_succeeded


@pytest.mark.parametrize("point", ["own", "move", "cleaned"])
def test_a_process_killed_between_event_and_ledger_is_healed(
    state: Path, ledger: Ledger, point: str
) -> None:
    """Really killed, by SIGKILL, when its event stands and the ledger does not know yet."""
    record = new_run(state, "r1", ledger)
    record.own(ProcessIdentity.own())
    move_to(record, RunState.RUNNING)
    before = ledger.row("r1")
    ledger.close()
    child = os.fork()
    if child == 0:
        dying = reopened(record, Ledger.open(state))
        die = {"own": "keep", "move": "transition", "cleaned": "keep"}[point]

        def killed(*args: object, **kwargs: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        match point:
            case "own":
                setattr(dying._ledger, die, killed)
                dying.own(ProcessIdentity.own())
            case "move":
                setattr(dying._ledger, die, killed)
                dying.move(RunState.FINISHED, exit_code=0)
            case "cleaned":
                with dying.cleaning():
                    setattr(dying._ledger, die, killed)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    behind = ledger.row("r1")
    told = read_story(RunFiles.of(state, "r1").events)
    assert behind.steps < told.steps
    assert behind.state is before.state
    heal(ledger, state)
    healed = ledger.row("r1")
    match point:
        case "own":
            assert healed.state is RunState.LOST
            assert healed.owner == told.owner
        case "move":
            assert (healed.state, healed.exit_code) == (RunState.FINISHED, 0)
        case "cleaned":
            assert healed.is_cleaned
    assert replace(healed, size=None) == reopened(record, ledger).row
