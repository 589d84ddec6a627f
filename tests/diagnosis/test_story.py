"""The story of a run, told from journals that are whole, broken, cut off or of no torch job."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_cli.cli.why_page import page_of
from dlrover_cli.cli.why_view import decision_in_words, story_lines
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.papers import events_in
from dlrover_cli.diagnosis.run_story import AttemptEnd, RunStory
from tests.diagnosis.journals import START, Journals, one_restart


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


def costs(story: RunStory) -> dict[str, float]:
    names = ("wall", "starting", "useful", "lost", "ending")
    return {name: pytest.approx(getattr(story.costs, name), abs=1e-3) for name in names}


def sums_up(story: RunStory) -> bool:
    told = story.costs
    return told.wall == pytest.approx(told.starting + told.useful + told.lost + told.ending)


def test_the_time_of_a_run_is_split_into_what_it_was_spent_on(journals: Journals) -> None:
    one_restart(journals)
    story = journals.story(ended=12)
    assert costs(story) == {"wall": 12, "starting": 2, "useful": 8, "lost": 1, "ending": 1}
    assert story.costs.goodput == pytest.approx(8 / 12)
    [lost] = story.interruptions
    assert (lost.attempt, lost.next_attempt, lost.is_failure) == (0, 1, True)
    assert lost.at == pytest.approx(START + 5)
    assert lost.seconds == pytest.approx(1)


def test_the_time_that_a_launcher_took_to_load_is_part_of_starting(journals: Journals) -> None:
    journals.state(2, "STARTING", since=START)
    journals.started(3, 0, 0)
    journals.exited(5, 0, 0, 0)
    story = journals.story(ended=5)
    assert costs(story) == {"wall": 5, "starting": 3, "useful": 2, "lost": 0, "ending": 0}


def test_times_are_added_up_and_counted(journals: Journals) -> None:
    for turn in (0, 10):
        journals.state(turn, "STARTING")
        journals.state(turn + 2, "STOPPING")
        journals.state(turn + 3, "PENDING")
    text = "\n".join(story_lines(journals.story(RunState.PENDING)))
    assert "Took       6.0s in 2 times" in text
    assert "State      PENDING" in text


def test_an_attempt_tells_who_failed_what_was_decided_and_what_was_wrong(
    journals: Journals,
) -> None:
    one_restart(journals)
    first, second = journals.story(ended=12).attempts
    assert (first.end, second.end) == (AttemptEnd.FAILED, AttemptEnd.SUCCEEDED)
    assert first.why == "rank 1 raised ValueError: a <b>bad</b> batch"
    assert first.steps == 7
    assert [(span.rank, span.status) for span in first.ranks] == [(0, -9), (1, 1)]
    assert first.decision is not None
    assert first.decision.problems == ("it said nothing",)
    told = "restarting all workers (NORMAL_FAILOVER by default; restart 1 of 3; after 0.5 s)"
    assert decision_in_words(first.decision) == told


def test_the_lines_tell_all_of_it(journals: Journals) -> None:
    one_restart(journals)
    text = "\n".join(story_lines(journals.story(ended=12)))
    for line in (
        "Took       12s, 2 attempts",
        "Goodput    67%: 8.0s of 12s useful; 2.0s starting, 1.0s lost, 1.0s ending",
        "Lost       1.0s to 1 failure",
        "failed      rank 1 raised ValueError: a <b>bad</b> batch (7 steps done)",
        "problem     it said nothing",
        "lost        1.0s until attempt 1 ran",
        "succeeded   every worker succeeded",
    ):
        assert line in text, text


def test_of_several_failures_that_which_was_decided_about_is_the_reason(
    journals: Journals,
) -> None:
    journals.state(0, "STARTING")
    journals.started(1, 0, 0)
    journals.started(1.5, 0, 1, node="vm.2")
    journals.node(2, "failure", 0, "vm.2", number=1, failure_kind="exit", root_rank=1)
    journals.failed(2.1, 0, 0)
    journals.decided(2.2, 0, "fail", node_rank=0)
    [attempt] = journals.story(RunState.FAILED, ended=3).attempts
    assert attempt.why.startswith("rank 0 raised")
    assert attempt.nodes == ("vm.1", "vm.2")
    assert attempt.ready == START + 1.5
    assert attempt.ended == START + 2  # no use without all of them


def test_a_lost_node_is_no_failure_but_costs_time_from_its_loss_on(journals: Journals) -> None:
    journals.state(0, "STARTING")
    journals.started(1, 0, 0)
    journals.started(1, 0, 1, node="vm.2")
    journals.node(4, "agent_lost", None, "manager.1", agent="vm.2", reason="it is silent")
    journals.decided(5, 0, "admit", trigger="membership", node_rank=None, reason="vm is lost")
    journals.started(8, 1, 0)
    journals.exited(9, 1, 0, 0)
    story = journals.story(ended=9)
    assert [attempt.end for attempt in story.attempts] == [
        AttemptEnd.INTERRUPTED,
        AttemptEnd.SUCCEEDED,
    ]
    assert [(each.is_failure, each.seconds) for each in story.interruptions] == [(False, 4.0)]
    assert "1 other interruption" in "\n".join(story_lines(story))
    assert [remark.what for remark in story.warnings] == ["node vm.2 was lost: it is silent"]


def test_a_run_that_goes_on_is_told_up_to_now(journals: Journals) -> None:
    journals.state(0, "STARTING")
    journals.started(2, 0, 0, 1)
    story = journals.story(RunState.RUNNING, now=10)
    assert story.attempts[0].end is AttemptEnd.RUNNING
    assert costs(story) == {"wall": 10, "starting": 2, "useful": 8, "lost": 0, "ending": 0}


def test_a_killed_run_is_told_up_to_its_last_sign_of_life(journals: Journals) -> None:
    journals.state(0, "STARTING")
    journals.started(2, 0, 0, 1)
    journals.exited(6, 0, 0, 0)
    journals.state(90_000, "LOST")
    story = journals.story(RunState.LOST, ended=90_000)
    assert story.attempts[0].end is AttemptEnd.UNKNOWN
    assert story.costs.wall == pytest.approx(6)
    assert story.costs.goodput is None
    text = "\n".join(story_lines(story))
    assert "nobody has written down its end" in text
    assert "Took       6.0s up to its last event" in text


def test_a_job_without_workers_of_ours_has_its_history(journals: Journals) -> None:
    journals.life(0, "submitted", by=None)
    journals.state(1, "STARTING")
    journals.state(5, "FAILED", exit_code=3, reason="it broke")
    story = journals.story(RunState.FAILED, ended=5)
    assert story.costs.goodput is None
    text = "\n".join(story_lines(story))
    assert "unknown: no events tell when workers ran" in text
    assert "FAILED: exit 3: it broke" in text


def test_each_time_of_a_periodic_job_has_attempts_of_its_own(journals: Journals) -> None:
    for number, start in enumerate((0, 100)):
        node = f"vm.{number + 1}"
        journals.state(start, "STARTING")
        journals.started(start + 1, 0, 0, node=node)
        journals.exited(start + 3, 0, 0, 0, node=node)
        journals.life(start + 4, "occurrence", number=number, exit_code=0, reason="")
        journals.state(start + 4, "STOPPING")
        journals.state(start + 4, "PENDING", reason="next at noon")
    story = journals.story(RunState.PENDING)
    assert [(each.launch, each.number) for each in story.attempts] == [(0, 0), (1, 0)]
    assert costs(story) == {"wall": 8, "starting": 2, "useful": 4, "lost": 0, "ending": 2}
    text = "\n".join(story_lines(story))
    assert "time 1, " in text
    assert "next at noon" not in text


def test_a_pending_run_has_nothing_to_tell_but_why_it_waits(journals: Journals) -> None:
    journals.life(0, "waiting", reason="no room in its queue")
    text = "\n".join(story_lines(journals.story(RunState.PENDING)))
    assert "waits: no room in its queue" in text
    assert "Goodput" not in text


def test_the_verdict_is_shown_and_one_that_is_damaged_is_left_out(journals: Journals) -> None:
    one_restart(journals)
    journals.result(verdict={"rank": 1})
    assert journals.story(ended=12).verdict is None
    verdict = {
        **dict.fromkeys(("host", "what", "when", "others", "decided", "logs"), "told"),
        "rank": 1,
        "at": START,
        "frames": [],
        "last_words": [],
        "cause": None,
    }
    journals.result(verdict=verdict)
    assert "FAILED: rank 1 on told told" in "\n".join(story_lines(journals.story(ended=12)))


def test_stacks_of_a_hang_warning_are_kept(journals: Journals) -> None:
    one_restart(journals)
    journals.node(4, "no_progress_warning", minutes=5.2, where="all in a\nb", stacks={"0": "f()"})
    [warning] = journals.story(ended=12).warnings
    assert warning.what == "nothing had moved for 5 minutes: all in a b"
    assert "f()" in warning.details


def check_told(journals: Journals, state: RunState) -> None:
    story = journals.story(state, ended=12, now=20)
    assert sums_up(story)
    assert list(story_lines(story))
    json.dumps(story.to_json(), allow_nan=False)
    page_of(story).encode()


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cuts=st.lists(st.floats(0, 1), min_size=3, max_size=3), state=st.sampled_from(RunState))
def test_journals_that_end_anywhere_are_told(
    tmp_path: Path, cuts: list[float], state: RunState
) -> None:
    journals = Journals(tmp_path)
    files = [
        tmp_path / name
        for name in ("events.jsonl", "nodes/vm.1/events.jsonl", "nodes/vm.1/failures/1.json")
    ]
    for path in files:
        path.unlink(missing_ok=True)
    one_restart(journals)
    for path, cut in zip(files, cuts, strict=True):
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * cut)])
    check_told(journals, state)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=25, deadline=None)
@given(line=st.integers(0, 9), key=st.sampled_from(["time", "attempt", "kind", "data"]), odd=ODD)
def test_a_value_that_nobody_expects_costs_its_line_at_most(
    tmp_path_factory: pytest.TempPathFactory, line: int, key: str, odd: object
) -> None:
    journals = Journals(tmp_path_factory.mktemp("run"))
    one_restart(journals)
    path = journals.directory / "nodes" / "vm.1" / "events.jsonl"
    events = [json.loads(each) for each in path.read_text().splitlines()]
    if key == "data":
        events[line]["data"] = dict.fromkeys(events[line]["data"], odd)
    else:
        events[line][key] = odd
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    check_told(journals, RunState.FINISHED)


def test_lines_that_are_no_events_are_counted(journals: Journals) -> None:
    one_restart(journals)
    with (journals.directory / "nodes" / "vm.1" / "events.jsonl").open("ab") as file:
        file.write(b"[1]\n\xff\xfe\n" + b"[" * 100_000 + b'\n{"kind": "fail')
    story = journals.story(ended=12)
    assert story.unreadable == ("4 lines of nodes/vm.1/events.jsonl cannot be read",)
    assert len(story.attempts) == 2


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(content: bytes) -> None:
    events_in(content)


def test_nodes_that_did_not_pass_their_check_are_told_once(journals: Journals) -> None:
    nodes = [
        {"node": 0, "host": "a", "standing": "sound", "why": ""},
        {"node": 1, "host": "b", "standing": "slow", "why": "a matmul takes 9 ms"},
        {"node": 2},
    ]
    for rank, name in enumerate(("vm.1", "vm.2")):
        journals.node(1, "preflight_result", None, name, rank=rank, nodes=nodes, leaving=[1])
    journals.started(2, 0, 0)
    assert [remark.what for remark in journals.story().warnings] == [
        "the check of the nodes found: node 1 (b) is slow: a matmul takes 9 ms"
    ]
