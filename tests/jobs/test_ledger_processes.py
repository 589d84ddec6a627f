"""Many processes and one ledger: each change is made once, whoever is killed on the way."""

import os
import random
import signal
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import IllegalTransition, RunState
from dlrover_cli.jobs import ledger_file
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.harness.waiting import eventually
from tests.jobs.runs import move_to, new_run, row

PROCESSES = 8


@pytest.fixture(params=["local", "network"])
def state(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: request.param == "network")
    return tmp_path / "dlrover"


@contextmanager
def processes(number: int, work: Callable[[int], None]) -> Iterator[list[int]]:
    """Forked, and begun together; at the end of the block they are waited for."""
    gate, opener = os.pipe()
    children = []
    for index in range(number):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(opener)
                os.read(gate, 1)
                work(index)
                code = 0
            except BaseException:  # noqa: BLE001 - a child must not go on with the test
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(gate)
    os.close(opener)
    codes = []
    try:
        yield children
    finally:
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(codes) <= {0, -signal.SIGKILL}, codes


def together(work: Callable[[int], None]) -> None:
    with processes(PROCESSES, work):
        pass


def test_all_open_the_first_ledger_at_once(state: Path) -> None:
    def work(index: int) -> None:
        with Ledger.open(state) as ledger:
            ledger.add(row(state, f"r{index}"))

    together(work)
    with Ledger.open(state) as ledger:
        assert ledger.count() == PROCESSES


def test_each_lives_fifty_runs(state: Path) -> None:
    def work(index: int) -> None:
        for number in range(50):
            with Ledger.open(state) as ledger:  # many openings at once, too
                run_id = f"r{index}-{number}"
                ledger.add(row(state, run_id))
                for to in (RunState.STARTING, RunState.RUNNING, RunState.FINISHED):
                    ledger.transition(run_id, to, at=1.0)

    together(work)
    with Ledger.open(state) as ledger:
        assert ledger.count([RunState.FINISHED]) == PROCESSES * 50
        assert {each.steps for each in ledger.rows()} == {3}


def test_all_want_the_same_fifty_changes_and_each_is_made_once(state: Path, tmp_path: Path) -> None:
    with Ledger.open(state) as ledger:
        ledger.add_all(row(state, f"r{number}") for number in range(50))

    def work(index: int) -> None:
        won = 0
        with Ledger.open(state) as ledger:
            for number in range(50):
                try:
                    ledger.transition(f"r{number}", RunState.STARTING)
                except IllegalTransition:
                    continue
                won += 1
        (tmp_path / f"won-{index}").write_text(str(won))

    together(work)
    assert sum(int(path.read_text()) for path in tmp_path.glob("won-*")) == 50


def test_all_want_the_same_run_and_its_events_tell_of_one(state: Path, tmp_path: Path) -> None:
    for number in range(10):
        new_run(state, f"r{number}", None).close()

    def work(index: int) -> None:
        for number in range(10):
            with (
                Ledger.open(state) as ledger,
                RunRecord.open(RunFiles.of(state, f"r{number}"), ledger, print) as record,
            ):
                if not record.own(ProcessIdentity.own(), when=lambda story: story.owner is None):
                    continue
                move_to(record, RunState.RUNNING)
                (tmp_path / f"owned-{number}-{index}").touch()

    together(work)
    assert len(list(tmp_path.glob("owned-*"))) == 10
    with Ledger.open(state) as ledger:
        for number in range(10):
            told = RunFiles.of(state, f"r{number}").events.read_text()
            assert (told.count('"owned"'), told.count('"state"')) == (1, 2)
            assert ledger.row(f"r{number}").state is RunState.RUNNING


@pytest.mark.parametrize("has_ledger", [True, False])
def test_all_clean_up_and_each_run_is_cleaned_once(
    state: Path, tmp_path: Path, has_ledger: bool
) -> None:
    with Ledger.open(state) as ledger:
        for number in range(20):
            with new_run(state, f"r{number}", ledger) as record:
                move_to(record, RunState.FINISHED)

    def work(index: int) -> None:
        with Ledger.open(state) as ledger:
            for number in range(20):
                files = RunFiles.of(state, f"r{number}")
                with (
                    RunRecord.open(files, ledger if has_ledger else None, print) as record,
                    record.cleaning() as is_due,
                ):
                    if is_due:
                        (tmp_path / f"cleaned-{number}-{index}").touch()

    together(work)
    assert len(list(tmp_path.glob("cleaned-*"))) == 20
    with Ledger.open(state) as ledger:
        heal(ledger, state)
        assert all(each.is_cleaned for each in ledger.rows())


def test_killed_at_any_moment_they_leave_a_ledger_that_can_be_healed(state: Path) -> None:
    runs = state / "runs"

    def work(index: int) -> None:
        with Ledger.open(state) as ledger:
            for number in range(1000):
                with new_run(state, f"r{index}-{number}", ledger) as record:
                    record.own(ProcessIdentity.own())
                    move_to(record, random.choice([RunState.RUNNING, RunState.FINISHED]))
                    with record.cleaning():
                        pass

    chosen = random.Random(5)
    with processes(PROCESSES, work) as children:
        for child in children:
            wanted = chosen.randint(5, 15)
            eventually(lambda wanted=wanted: runs.exists() and len(os.listdir(runs)) > wanted)
            os.kill(child, signal.SIGKILL)
    problems: list[str] = []
    with Ledger.open(state, problems.append) as ledger:
        heal(ledger, state, on_problem=problems.append)
        found = ledger.rows()
        expected = [path.name for path in runs.iterdir() if (path / "job.json").exists()]
        assert {each.run_id for each in found} == set(expected)
        for each in found:
            record = RunRecord.open(RunFiles(each.directory), None, print)
            assert each.state is record.state
            assert each.is_cleaned is record.story.is_cleaned
            assert each.state.is_over or each.owner is None
            record.close()
    assert problems == []
    with closing(sqlite3.connect(state / "ledger.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_broken_ledger_that_all_find_at_once_is_replaced_once(state: Path) -> None:
    Ledger.open(state).close()
    (state / "ledger.db").write_bytes(b"no database " * 1000)
    for number in range(5):
        new_run(state, f"r{number}", None).own(ProcessIdentity.own())

    def work(index: int) -> None:
        with Ledger.open(state) as ledger:
            heal(ledger, state)
            assert ledger.count() == 5

    together(work)
    assert len(list(state.glob("*.broken-*"))) == 1
