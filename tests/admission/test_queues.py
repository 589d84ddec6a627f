"""Submitted jobs start in their turn, make room, and leave nothing behind in the book."""

import signal
import time

import pytest

from dlrover_cli.admission.book import only_one
from dlrover_cli.contracts.run_states import RunState
from tests.admission.queued import book, end, lasting, started, submit, write_extender
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, shell

ONE_AT_A_TIME = {"queues": {"default": {"capacity": 1}}}


def _waits(run: SubmittedRun, why: str) -> None:
    eventually(lambda: run.story.reason == why, 30.0, what=f"{run.run_id} waits since {why}")
    assert run.story.state is RunState.PENDING


def test_jobs_of_a_full_queue_wait_and_start_by_priority_then_age(jobs: Jobs) -> None:
    write_extender(jobs, **ONE_AT_A_TIME)
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [second] = submit(jobs, second=lasting("second"))
    _waits(second, "queue default holds 1 of 1 agents, and the job needs 1")
    [urgent] = submit(jobs, urgent=lasting("urgent", priority=5))
    _waits(urgent, "queue default holds 1 of 1 agents, and the job needs 1")
    _waits(second, "urgent of the same queue is before it")
    assert jobs.listed()[second.run_id]["reason"] == "urgent of the same queue is before it"

    for name in ("first", "urgent", "second"):
        end(jobs, name)
    for run in (first, urgent, second):
        assert run.ended().state is RunState.FINISHED

    assert started(jobs) == ["first", "urgent", "second"]
    assert book(jobs) == {}


@pytest.mark.full
def test_a_job_that_has_waited_long_goes_before_a_more_important_one(jobs: Jobs) -> None:
    write_extender(jobs, queues={"default": {"capacity": 1, "aging": "10ms"}})
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [patient] = submit(jobs, patient=lasting("patient"))
    _waits(patient, "queue default holds 1 of 1 agents, and the job needs 1")
    eventually(lambda: time.time() - book(jobs)["patient"]["submitted"] > 0.1, PATIENCE)
    [urgent] = submit(jobs, urgent=lasting("urgent", priority=1))
    _waits(urgent, "patient of the same queue has waited long and is before it")

    for name in ("first", "patient", "urgent"):
        end(jobs, name)
    for run in (first, patient, urgent):
        assert run.ended().state is RunState.FINISHED

    assert started(jobs) == ["first", "patient", "urgent"]
    assert book(jobs) == {}


@pytest.mark.full
def test_a_runner_that_is_killed_loses_its_job_and_its_place(jobs: Jobs) -> None:
    write_extender(jobs, **ONE_AT_A_TIME)
    [lost] = submit(jobs, lost=lasting("lost"))
    lost.wait_for(RunState.RUNNING)
    [next_one] = submit(jobs, next=lasting("next"))
    eventually(lambda: next_one.story.reason, PATIENCE)

    lost.kill_owner()

    next_one.wait_for(RunState.RUNNING)
    assert lost.story.state is RunState.KILLED, "its job is ended before another has its place"
    assert list(book(jobs)) == ["next"]
    end(jobs, "next")
    assert next_one.ended().state is RunState.FINISHED


def test_a_victim_ends_in_good_order_and_runs_again_from_the_queue(jobs: Jobs) -> None:
    write_extender(jobs, actions="allocate, preempt", **ONE_AT_A_TIME)
    [victim] = submit(jobs, victim=lasting("victim"))
    victim.wait_for(RunState.RUNNING)

    [urgent] = submit(jobs, urgent=lasting("urgent", priority=9))
    urgent.wait_for(RunState.RUNNING)

    _waits(victim, "queue default holds 1 of 1 agents, and the job needs 1")
    stopping = next(
        event["data"]
        for event in victim.events
        if event["kind"] == "state" and event["data"]["to"] == "STOPPING"
    )
    assert stopping["reason"] == "preempted by urgent, which has priority 9"
    end(jobs, "urgent")
    end(jobs, "victim")
    assert urgent.ended().state is RunState.FINISHED
    assert victim.ended().state is RunState.FINISHED
    assert victim.states == [
        *("PENDING", "STARTING", "RUNNING", "STOPPING"),
        *("PENDING", "STARTING", "RUNNING", "FINISHED"),
    ]
    assert started(jobs) == ["victim", "urgent", "victim"]
    assert book(jobs) == {}


@pytest.mark.full
def test_a_victim_has_all_its_restarts_again(jobs: Jobs) -> None:
    """One is spent before it makes room, and one after that; it has no more than one."""
    (jobs.project / "train.py").write_text(
        "import os, pathlib, time\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    raise SystemExit(3)\n"
        "pathlib.Path('restarted').touch()\n"
        "while not pathlib.Path('victim.end').exists():\n"
        "    time.sleep(0.05)\n"
    )
    write_extender(jobs, actions="allocate, preempt", **ONE_AT_A_TIME)
    properties = {"script": "train.py", "max_restarts": 1}
    [victim] = submit(jobs, victim={"engine": "torch", "properties": properties})
    eventually((jobs.project / "restarted").exists, PATIENCE)

    [urgent] = submit(jobs, urgent=lasting("urgent", priority=9))
    urgent.wait_for(RunState.RUNNING)
    for name in ("victim", "urgent"):
        end(jobs, name)

    assert urgent.ended().state is RunState.FINISHED
    assert victim.ended().state is RunState.FINISHED, victim.log
    assert victim.states.count("STARTING") == 2


def _is_suspended_without_the_book(run: SubmittedRun, jobs: Jobs) -> bool:
    """Suspend its runner, but not while it looks into the book, which all others wait for."""
    assert run.owner.signal(signal.SIGSTOP)
    eventually(run.owner.is_suspended)
    with only_one(jobs.state / "queue.lock") as is_free:
        return is_free or not run.owner.signal(signal.SIGCONT)


@pytest.mark.full
def test_one_that_has_to_make_room_before_it_knows_of_its_place_waits_again(jobs: Jobs) -> None:
    """It got a place and lost it while its runner did not run at all."""
    write_extender(jobs, actions="allocate, preempt", **ONE_AT_A_TIME)
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [victim] = submit(jobs, victim=lasting("victim"))
    _waits(victim, "queue default holds 1 of 1 agents, and the job needs 1")
    eventually(lambda: _is_suspended_without_the_book(victim, jobs), PATIENCE, interval=0.1)
    end(jobs, "first")
    assert first.ended().state is RunState.FINISHED
    assert book(jobs)["victim"]["node"] is not None

    [urgent] = submit(jobs, urgent=lasting("urgent", priority=9))
    eventually(lambda: book(jobs)["victim"]["is_releasing"], PATIENCE)
    assert victim.owner.signal(signal.SIGCONT)

    urgent.wait_for(RunState.RUNNING)
    for name in ("urgent", "victim"):
        end(jobs, name)
    for run in (urgent, victim):
        assert run.ended().state is RunState.FINISHED, run.log
    assert started(jobs) == ["first", "urgent", "victim"]
    assert book(jobs) == {}


@pytest.mark.full
def test_a_capacity_below_what_runs_ends_nobody_and_starts_nobody(jobs: Jobs) -> None:
    write_extender(jobs, queues={"default": {"capacity": 2}})
    first, second = submit(jobs, first=lasting("first"), second=lasting("second"))
    for run in (first, second):
        run.wait_for(RunState.RUNNING)

    write_extender(jobs, **ONE_AT_A_TIME)
    [third] = submit(jobs, third=lasting("third"))
    _waits(third, "queue default holds 2 of 1 agents, and the job needs 1")
    end(jobs, "first")
    assert first.ended().state is RunState.FINISHED
    _waits(third, "queue default holds 1 of 1 agents, and the job needs 1")
    assert second.story.state is RunState.RUNNING

    for name in ("second", "third"):
        end(jobs, name)
    for run in (second, third):
        assert run.ended().state is RunState.FINISHED


@pytest.mark.full
def test_a_job_that_waits_can_be_stopped_and_those_behind_it_go_on(jobs: Jobs) -> None:
    write_extender(jobs, **ONE_AT_A_TIME)
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [second] = submit(jobs, second=lasting("second"))
    eventually(lambda: second.story.reason, PATIENCE)

    jobs.command("stop", second.run_id)

    assert second.story.state is RunState.KILLED
    assert started(jobs) == ["first"]
    end(jobs, "first")
    assert first.ended().state is RunState.FINISHED
    second.ended()
    assert book(jobs) == {}


@pytest.mark.full
def test_a_waiting_runner_that_is_killed_keeps_nobody_from_starting(jobs: Jobs) -> None:
    write_extender(jobs, **ONE_AT_A_TIME)
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [second] = submit(jobs, second=lasting("second", priority=1))
    eventually(lambda: second.story.reason, PATIENCE)
    [third] = submit(jobs, third=lasting("third"))
    eventually(lambda: third.story.reason, PATIENCE)

    assert second.owner.signal(signal.SIGKILL)
    end(jobs, "first")
    end(jobs, "third")

    assert third.ended().state is RunState.FINISHED
    assert started(jobs) == ["first", "third"]


@pytest.mark.full
def test_a_file_that_breaks_while_jobs_wait_is_said_and_mended(jobs: Jobs) -> None:
    write_extender(jobs, **ONE_AT_A_TIME)
    [first] = submit(jobs, first=lasting("first"))
    first.wait_for(RunState.RUNNING)
    [second] = submit(jobs, second=lasting("second"))
    eventually(lambda: second.story.reason, PATIENCE)

    (jobs.project / "extender.yaml").write_text("queues: 7")
    end(jobs, "first")
    assert first.ended().state is RunState.FINISHED
    eventually(lambda: "extender.yaml:1" in second.story.reason, PATIENCE)
    write_extender(jobs, **ONE_AT_A_TIME)
    end(jobs, "second")

    assert second.ended().state is RunState.FINISHED
    assert book(jobs) == {}


@pytest.mark.full
def test_plugins_of_volcano_that_mean_nothing_here_are_named(jobs: Jobs) -> None:
    write_extender(jobs, tiers=[{"plugins": [{"name": "gang"}, {"name": "drf"}]}])
    path = jobs.write({"one": shell("true")})

    done = jobs.command("submit", "--wait", "--extender", "extender.yaml", path)

    assert "extender.yaml: has no meaning here: gang, drf" in done.stderr


def test_what_could_never_start_is_refused_at_once(jobs: Jobs) -> None:
    write_extender(jobs, queues={"gold": {}})
    path = jobs.write({"one": lasting("one", queue="silver")})

    refused = jobs.command("submit", "--extender", "extender.yaml", path, check=False)
    missing = jobs.command("submit", "--extender", "none.yaml", path, check=False)
    unnamed = jobs.command(
        "submit", "--extender", "extender.yaml", jobs.write({"one": lasting("one")}), check=False
    )

    assert (refused.returncode, missing.returncode, unnamed.returncode) == (2, 2, 2)
    assert "there is no queue 'silver' in extender.yaml" in refused.stderr
    assert "its queues: gold" in refused.stderr
    assert "none.yaml" in missing.stderr
    assert "names no queue" in unnamed.stderr
    assert jobs.runs() == []
