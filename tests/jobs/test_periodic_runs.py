"""A periodic job is one run: it starts again and again until it is stopped."""

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.life import next_turn
from dlrover_cli.jobs.periodic import Schedule
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, play, shell

pytestmark = pytest.mark.full  # real jobs, one after the other

SOON = {"interval": 0.1}
TURN = ["STARTING", "RUNNING", "STOPPING", "PENDING"]


@pytest.mark.parametrize(
    "now, following", [(100.1, 110.0), (109.9, 110.0), (110.0, 110.0), (125.0, 130.0), (1e9, 1e9)]
)
def test_turns_that_went_by_are_left_out(now: float, following: float) -> None:
    assert next_turn(Schedule(interval=10.0), 100.0, now) == following


def occurrences(run: SubmittedRun) -> list[dict[str, object]]:
    return [event["data"] for event in run.events if event["kind"] == "occurrence"]


def wait_for_occurrences(run: SubmittedRun, number: int) -> None:
    eventually(lambda: len(occurrences(run)) >= number, PATIENCE, what=f"{number} occurrences")


def test_it_runs_until_it_is_stopped_and_keeps_the_output_of_each_time(jobs: Jobs) -> None:
    run = jobs.submit_one(**shell("echo again >> times; echo out"), periodic_config=SOON)
    wait_for_occurrences(run, 3)
    jobs.command("stop", run.run_id)
    run.ended()
    assert run.states[:9] == ["PENDING", *TURN, *TURN]
    assert run.states[-2:] == ["STOPPING", "KILLED"]
    assert [each["number"] for each in occurrences(run)][:3] == [0, 1, 2]
    assert all(each["exit_code"] == 0 for each in occurrences(run))
    times = (jobs.project / "times").read_text().split()
    logs = list(run.files.nodes.glob("*/logs/attempt_*/0/stdout.log"))
    assert len(times) == len(logs) >= 3
    assert all(log.read_text() in ("out\n", "") for log in logs)
    assert run.story.is_cleaned


def test_each_time_is_cleaned_up_once(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(), periodic_config=SOON)
    wait_for_occurrences(run, 2)
    jobs.command("stop", run.run_id)
    run.ended()
    calls = jobs.calls()
    assert calls.count("cleanup_job") == calls.count("generate_job_resource") >= 2


def test_a_failure_does_not_keep_the_next_from_its_turn(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(submit_job="raise_once"), periodic_config=SOON)
    wait_for_occurrences(run, 2)
    jobs.command("stop", run.run_id)
    first, second = occurrences(run)[:2]
    assert (first["exit_code"], second["exit_code"]) == (1, 0)
    assert first["reason"] == "submit_job raised RuntimeError: no submit_job today"
    assert jobs.calls()[1:4] == ["generate_job_resource", "submit_job", "cleanup_job"]


def test_a_stop_during_an_occurrence_stops_the_job(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(wait="until_end"), periodic_config=SOON)
    run.wait_for(RunState.RUNNING)
    jobs.command("stop", run.run_id)
    run.ended()
    assert run.states == ["PENDING", "STARTING", "RUNNING", "STOPPING", "KILLED"]
    assert jobs.calls()[-2:] == ["stop_job", "cleanup_job"]
    assert run.result["outcome"] == "signalled"


def test_a_stop_between_two_has_nothing_to_stop(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(), periodic_config={"interval": "1h"})
    wait_for_occurrences(run, 1)
    run.wait_for(RunState.PENDING)
    assert run.story.reason.startswith("next at ")
    assert jobs.listed()[run.run_id]["state"] == "PENDING"
    jobs.command("stop", run.run_id)
    run.ended()
    assert run.states == ["PENDING", *TURN, "STOPPING", "KILLED"]
    assert jobs.calls().count("stop_job") == 0
    assert jobs.calls().count("cleanup_job") == 1
    assert run.story.is_cleaned


def test_one_whose_runner_was_killed_between_two_is_lost_and_can_be_removed(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(), periodic_config={"interval": "1h"})
    wait_for_occurrences(run, 1)
    run.wait_for(RunState.PENDING)
    run.kill_owner()
    assert jobs.listed()[run.run_id]["state"] == "LOST"
    jobs.command("cleanup", run.run_id)
    assert jobs.calls().count("stop_job") == 0
    assert not jobs.runs()


def test_it_starts_once_those_before_have_finished(jobs: Jobs) -> None:
    first, second = jobs.submit(
        a=play(wait="until_end"), b={**shell("echo b"), "after": ["a"], "periodic_config": SOON}
    )
    first.wait_for(RunState.RUNNING)
    assert second.states == ["PENDING"]
    jobs.end_job()
    wait_for_occurrences(second, 2)
    jobs.command("stop", second.run_id)


def test_one_that_waits_for_its_first_time_says_when_that_is(jobs: Jobs) -> None:
    run = jobs.submit_one(**play(), periodic_config={"cron": "0 0 29 2 *"})  # in a leap year
    eventually(lambda: run.story.reason, PATIENCE, what="a reason to wait")
    listed = jobs.listed()[run.run_id]
    assert listed["state"] == "PENDING"
    assert listed["reason"].startswith("next at ")
    assert listed["reason"].endswith("-02-29 00:00:00")
    jobs.command("stop", run.run_id)
    run.ended()
    assert run.states == ["PENDING", "STOPPING", "KILLED"]
    assert "submit_job" not in jobs.calls()
