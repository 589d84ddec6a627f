"""What the ledger keeps: rows, legal changes of state, claims, and finding what a person means."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.contracts.run_states import IllegalTransition, RunState
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.ledger import Ledger, RowIsBehind, UnknownRun
from dlrover_cli.jobs.ledger_rows import row_of
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.jobs.runs import PATHS, document, elsewhere, ended_process, reused_pid, row


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "dlrover"


@pytest.fixture
def ledger(state: Path) -> Ledger:
    return Ledger.open(state)


def test_a_row_comes_back_as_it_was_put_in(state: Path, ledger: Ledger) -> None:
    full = row(
        state,
        "r1",
        name="größer",
        reason='it\'s "so"\nor so',
        exit_code=-9,
        after=("a", "b"),
        queue="q",
        priority=-3,
        owner=ProcessIdentity(1, None, "", "h"),
        started=1.5,
        ended=2.25,
        size=1 << 40,
        is_cleaned=True,
        state=RunState.KILLED,
        steps=7,
    )
    ledger.add(full)
    assert ledger.row("r1") == full
    with Ledger.open(state) as again:
        assert again.row("r1") == full
    assert full.directory == state / "runs" / "r1"


def test_what_is_no_utf8_is_kept_readable(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1", reason="bytes \udcff"))
    assert ledger.row("r1").reason == "bytes \\udcff"
    with pytest.raises(UsageError):
        ledger.find("\udcff")


def test_adding_a_run_again_changes_nothing(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1", steps=3, state=RunState.RUNNING))
    ledger.add(row(state, "r1", steps=1))
    assert ledger.row("r1").state is RunState.RUNNING


@pytest.mark.parametrize("now", RunState)
@pytest.mark.parametrize("to", RunState)
def test_only_legal_changes_of_state(
    state: Path, ledger: Ledger, now: RunState, to: RunState
) -> None:
    ledger.add(row(state, "r1", state=now))
    if now.may_become(to):
        ledger.transition("r1", to, reason="because", exit_code=4, at=10.0)
        assert ledger.row("r1").state is to
        assert ledger.row("r1").reason == "because"
        assert ledger.row("r1").exit_code == 4
    else:
        with pytest.raises(IllegalTransition):
            ledger.transition("r1", to)
        assert ledger.row("r1") == replace(
            row(state, "r1", state=now), submitted=ledger.row("r1").submitted
        )


def test_a_step_told_twice_is_one(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1", state=RunState.RUNNING, steps=4))
    ledger.transition("r1", RunState.FINISHED, at=5.0, step=5)
    ledger.transition("r1", RunState.FINISHED, at=5.0, step=5)
    assert ledger.row("r1").steps == 5
    with pytest.raises(IllegalTransition):
        ledger.transition("r1", RunState.FINISHED, at=6.0, step=6)
    with pytest.raises(IllegalTransition):
        ledger.transition("r1", RunState.FINISHED)


def test_a_step_after_one_that_was_missed_is_refused(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1", steps=1))
    with pytest.raises(RowIsBehind):
        ledger.transition("r1", RunState.FAILED, step=3)  # legal from PENDING, but not next
    assert ledger.row("r1").state is RunState.PENDING


def test_a_reader_that_was_slow_takes_nothing_back(state: Path, ledger: Ledger) -> None:
    ledger.keep(row(state, "r1", state=RunState.FINISHED, steps=5))
    ledger.keep(row(state, "r1", state=RunState.RUNNING, steps=4))
    assert ledger.row("r1").state is RunState.FINISHED


@given(st.lists(st.sampled_from(RunState), max_size=12))
def test_steps_one_by_one_and_the_whole_story_make_the_same_row(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[RunState]
) -> None:
    state = tmp_path_factory.mktemp("ledger")
    story, asked = Story(steps=1), document("r1")
    path = RunFiles.of(state, "r1").path
    with Ledger.open(state) as ledger:
        ledger.add(row_of(asked, story, path))
        for number, to in enumerate(wanted, start=1):
            data = {"to": to.value, "reason": to.value, "exit_code": number}
            following = story.after({"kind": "state", "data": data, "time": float(number)})
            if following == story:
                with pytest.raises(IllegalTransition):
                    ledger.transition("r1", to)
                continue
            story = following
            ledger.transition(
                "r1", to, reason=to.value, exit_code=number, at=float(number), step=story.steps
            )
        assert ledger.row("r1") == row_of(asked, story, path)


def test_a_run_that_is_not_there(ledger: Ledger) -> None:
    for act in (
        lambda: ledger.row("r1"),
        lambda: ledger.transition("r1", RunState.STARTING),
        lambda: ledger.claim_cleanup("r1", ProcessIdentity.own()),
    ):
        with pytest.raises(UnknownRun, match="there is no run r1"):
            act()
    ledger.release_cleanup("r1")
    ledger.remove("r1")


def test_rows_are_newest_first_and_can_be_chosen(state: Path, ledger: Ledger) -> None:
    for number, each in enumerate(PATHS):
        ledger.add(row(state, f"r{number}", submitted=float(number), state=each))
    assert [each.run_id for each in ledger.rows(limit=2)] == ["r8", "r7"]
    assert len(ledger.rows()) == ledger.count() == 9
    chosen = [RunState.LOST, RunState.FAILED]
    assert [each.state for each in ledger.rows(states=chosen)] == chosen
    assert ledger.count(chosen) == 2
    assert ledger.rows(states=[]) == []
    active = [RunState.STOPPING, RunState.RUNNING, RunState.STARTING, RunState.PENDING]
    assert [each.state for each in ledger.active()] == active
    ledger.remove("r8")
    assert ledger.run_ids() == {f"r{number}" for number in range(8)}


def test_sizes_are_summed_up_and_survive_the_next_step(state: Path, ledger: Ledger) -> None:
    assert ledger.total_size() == 0
    for name in ("r1", "r2", "r3"):
        ledger.add(row(state, name))
    ledger.settle([("r1", 0, 100), ("r2", 0, 50)])
    ledger.transition("r1", RunState.STARTING)
    assert ledger.total_size() == 150


def test_a_run_that_made_a_step_since_is_not_settled(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1"))
    ledger.settle([("r1", 0, 1)])
    assert ledger.unsettled() == []
    ledger.transition("r1", RunState.STARTING)
    ledger.settle([("r1", 0, 1)])
    assert [each.run_id for each in ledger.unsettled()] == ["r1"]


def test_one_claims_the_cleanup_and_the_others_do_not(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1"))
    assert ledger.claim_cleanup("r1", ProcessIdentity.own())
    assert not ledger.claim_cleanup("r1", ProcessIdentity.own())
    ledger.release_cleanup("r1")
    assert ledger.claim_cleanup("r1", elsewhere())
    assert not ledger.claim_cleanup("r1", ProcessIdentity.own())  # it may live, over there


@pytest.mark.parametrize("gone", [ended_process, reused_pid])
def test_a_claimant_that_has_died_is_succeeded(
    state: Path, ledger: Ledger, gone: Callable[[], ProcessIdentity]
) -> None:
    ledger.add(row(state, "r1"))
    assert ledger.claim_cleanup("r1", gone())
    assert ledger.claim_cleanup("r1", ProcessIdentity.own())


def test_nobody_claims_what_is_cleaned_until_it_runs_again(state: Path, ledger: Ledger) -> None:
    ledger.add(row(state, "r1", state=RunState.STOPPING, steps=1))
    assert ledger.claim_cleanup("r1", ProcessIdentity.own())
    ledger.keep(row(state, "r1", state=RunState.STOPPING, steps=2, is_cleaned=True))
    assert not ledger.claim_cleanup("r1", ended_process())
    ledger.transition("r1", RunState.PENDING, step=3)
    assert ledger.claim_cleanup("r1", ProcessIdentity.own())


def test_a_run_is_found_by_its_id_its_beginning_or_its_jobs_name(
    state: Path, ledger: Ledger
) -> None:
    ids = ["20260101-000000-aaaaaa", "20260101-000000-aaaaab", "20260202-000000-cccccc"]
    for number, run_id in enumerate(ids):
        ledger.add(row(state, run_id, submitted=float(number), name=f"job{number % 2}"))
    assert ledger.find(ids[0]).run_id == ids[0]
    assert ledger.find("202602").run_id == ids[2]
    assert ledger.find("job0").run_id == ids[2]
    assert ledger.find("job1").run_id == ids[1]
    with pytest.raises(UsageError, match="beginning of several runs") as ambiguous:
        ledger.find("20260101")
    assert ids[0] in ambiguous.value.message
    assert ids[2] not in ambiguous.value.message
    with pytest.raises(UsageError, match="there is no run or job 'jobb1'") as near:
        ledger.find("jobb1")
    assert near.value.hint == "did you mean job1 or job0?"
    for typed in ("2026202-000000-cccccc", "20260202-00000-cc", "20260202-000000-cccccx"):
        with pytest.raises(UsageError) as near:
            ledger.find(typed)
        assert near.value.hint == f"did you mean {ids[2]}?"
    with pytest.raises(UsageError) as other:
        ledger.find("20260202-000000-123456")  # of the same second, and no typing error
    assert other.value.hint == "see `dlrover-job list`"
    for text in ("", "%", "2026*", "x" * 10_000):
        with pytest.raises(UsageError):
            ledger.find(text)


def test_many_beginnings_are_not_all_listed(state: Path, ledger: Ledger) -> None:
    ledger.add_all(row(state, f"r{number:03}") for number in range(100))
    with pytest.raises(UsageError, match="…") as error:
        ledger.find("r")
    assert len(error.value.message) < 200


def test_threads_share_a_ledger(state: Path, ledger: Ledger) -> None:
    def work(name: str) -> None:
        for number in range(20):
            ledger.add(row(state, f"{name}-{number}"))
            ledger.transition(f"{name}-{number}", RunState.STARTING)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.count([RunState.STARTING]) == 80
