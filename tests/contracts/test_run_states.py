"""The one machine of states: which may follow which, and which are ends."""

import pytest

from dlrover_cli.contracts.run_states import ENDED, RunState

FOLLOWING = {
    "PENDING": "STARTING STOPPING SKIPPED FAILED LOST",
    "STARTING": "RUNNING STOPPING FAILED LOST",
    "RUNNING": "FINISHED FAILED STOPPING LOST",
    "STOPPING": "KILLED FINISHED FAILED PENDING LOST",
    "LOST": "STOPPING",
    "FINISHED": "",
    "FAILED": "",
    "KILLED": "",
    "SKIPPED": "",
}


def test_there_are_these_states_and_no_others() -> None:
    assert {state.value for state in RunState} == FOLLOWING.keys()


@pytest.mark.parametrize("now", RunState)
def test_each_leads_to_those_and_to_no_other(now: RunState) -> None:
    followed = {to.value for to in RunState if now.may_become(to)}
    assert followed == set(FOLLOWING[now.value].split())


def test_nothing_follows_an_end_and_only_a_stop_follows_a_loss() -> None:
    assert {state for state in RunState if not FOLLOWING[state.value]} == ENDED
    assert {state for state in RunState if state.is_over} == ENDED | {RunState.LOST}
