"""A service that decides about submitted jobs hears of each place, taken and free again."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlrover_cli.admission.book import opened_book, read_book
from dlrover_cli.admission.giving_back import files_with_ends
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.scheduling.kept_places import KeptPlaces
from dlrover_cli.scheduling.local_node import this_node
from dlrover_cli.scheduling.model import TaskView
from dlrover_cli.scheduling.options import from_options
from tests.admission.queued import book, end, lasting, started, submit, write_extender
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, shell
from tests.scheduling.golden_bodies import assert_bodies_are_golden
from tests.scheduling.recording_service import RecordingService, recording_service

STOPPING = RunState.STOPPING.value
QUEUES = {"default": {"capacity": 1}}


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with recording_service() as service:
        yield service


def test_every_verb_is_asked_in_the_order_of_a_session(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, **service.settings())
    [run] = submit(jobs, train=shell("true", resources={"cpu": 1}))

    assert run.ended().state is RunState.FINISHED

    assert service.verbs == [
        *("onSessionOpen", "jobEnqueueable", "jobEnqueued", "queueOverused", "predicate"),
        *("allocateFunc", "jobReady", "onSessionClose"),
        *("onSessionOpen", "deallocateFunc", "onSessionClose"),
    ]
    assert_bodies_are_golden(service)
    assert service.held() == {}


@pytest.mark.full
def test_a_job_waits_for_as_long_as_the_service_refuses_it(
    jobs: Jobs, service: RecordingService
) -> None:
    service.answers["predicate"] = {"code": 1, "errorMessage": "the GPU is being mended"}
    write_extender(jobs, **service.settings())
    [run] = submit(jobs, train=lasting("train"))

    eventually(lambda: "the GPU is being mended" in run.story.reason, PATIENCE)

    assert run.story.state is RunState.PENDING
    jobs.command("stop", run.run_id)
    assert run.ended().state is RunState.KILLED
    assert started(jobs) == []
    assert service.held() == {}


@pytest.mark.full
def test_a_service_that_changes_its_mind_is_asked_again(
    jobs: Jobs, service: RecordingService
) -> None:
    service.answers["jobEnqueueable"] = {"status": -1}
    write_extender(jobs, **service.settings())
    [run] = submit(jobs, train=shell("true"))
    eventually(lambda: "does not let it into queue" in run.story.reason, PATIENCE)

    service.answers.clear()

    assert run.ended().state is RunState.FINISHED
    assert service.held() == {}


@pytest.mark.full
def test_a_place_whose_runner_was_killed_is_given_back_by_the_next_session(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, queues=QUEUES, **service.settings())
    [lost] = submit(jobs, lost=lasting("lost"))
    lost.wait_for(RunState.RUNNING)

    lost.kill_owner()
    assert service.held() == {"lost-0": 1}
    [after] = submit(jobs, after=shell("true"))

    assert after.ended().state is RunState.FINISHED
    assert service.tasks("deallocateFunc") == ["lost-0", "after-0"]
    assert service.held() == {}
    assert book(jobs) == {}


@pytest.mark.parametrize("command", ["stop", "cleanup"])
def test_the_place_of_a_killed_run_is_given_back_when_it_is_stopped_though_nobody_waits(
    jobs: Jobs, service: RecordingService, command: str
) -> None:
    write_extender(jobs, queues=QUEUES, **service.settings())
    [lost] = submit(jobs, lost=lasting("lost"))
    lost.wait_for(RunState.RUNNING)
    lost.kill_owner()

    assert jobs.listed()[lost.run_id]["state"] == "LOST"
    assert service.held() == {"lost-0": 1}, "its job may still run"
    jobs.command(command, lost.run_id)

    eventually(lambda: book(jobs) == {}, PATIENCE)
    assert service.held() == {}


@pytest.mark.full
def test_a_list_waits_for_no_service_that_has_to_hear_of_a_place(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, **service.settings())
    service.answers["deallocateFunc"] = 500
    [run] = submit(jobs, train=shell("true"))
    assert run.ended().state is RunState.FINISHED
    age_sessions(jobs)
    is_listed = threading.Event()
    service.answers["deallocateFunc"] = lambda: is_listed.wait(PATIENCE)

    assert jobs.listed()[run.run_id]["state"] == "FINISHED"
    is_listed.set()

    eventually(lambda: book(jobs) == {}, PATIENCE)
    assert service.held() == {}


def test_an_end_that_comes_while_places_are_given_back_is_given_back_too(
    jobs: Jobs, service: RecordingService
) -> None:
    """Whoever sees it then goes, since somebody is at work: who has looked before it was there."""
    settings = service.settings("allocateFunc", "deallocateFunc")
    write_extender(jobs, **{**settings, "extender.httpTimeout": "60s"})
    service.answers["deallocateFunc"] = 500
    [first] = submit(jobs, first=shell("true"))
    assert first.ended().state is RunState.FINISHED
    [lost] = submit(jobs, lost=lasting("lost"))
    lost.wait_for(RunState.RUNNING)
    lost.kill_owner()
    age_sessions(jobs)
    is_told, may_go_on = threading.Event(), threading.Event()

    def take_a_while() -> None:
        is_told.set()
        may_go_on.wait(PATIENCE)

    service.answers["deallocateFunc"] = take_a_while
    at_work = giving_back(jobs)
    assert is_told.wait(PATIENCE)
    program("stop_lost", jobs, lost.run_id).wait(PATIENCE)
    assert lost.story.state is RunState.KILLED
    assert giving_back(jobs).wait(PATIENCE) == 0, "it waits for nobody"
    assert sorted(book(jobs)) == ["first", "lost"]
    may_go_on.set()

    assert at_work.wait(PATIENCE) == 0
    assert book(jobs) == {}
    assert service.held() == {}


def giving_back(jobs: Jobs) -> "subprocess.Popen[bytes]":
    """What a look at the runs starts; without the look."""
    return program("giving_back", jobs)


def program(module: str, jobs: Jobs, *argv: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", f"dlrover_cli.admission.{module}"]
    return subprocess.Popen([*command, str(jobs.state), *argv], env=jobs.environ)


@pytest.mark.full
def test_a_place_of_a_file_that_is_gone_is_kept_and_not_asked_for_at_every_look(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, **service.settings())
    service.answers["deallocateFunc"] = 500
    [run] = submit(jobs, train=shell("true"))
    assert run.ended().state is RunState.FINISHED
    (jobs.project / "extender.yaml").unlink()
    [before] = age_sessions(jobs).values()

    jobs.listed()

    eventually(lambda: sessions(jobs) != {str(jobs.project / "extender.yaml"): before}, PATIENCE)
    assert list(book(jobs)) == ["train"]
    now = time.time()
    assert files_with_ends(read_book(jobs.state), jobs.state, now) == set()
    assert files_with_ends(read_book(jobs.state), jobs.state, now + 60) != set()


def sessions(jobs: Jobs) -> dict[str, float]:
    """When each file's last session was."""
    return dict(read_book(jobs.state).sessions)


def age_sessions(jobs: Jobs) -> dict[str, float]:
    """Let them be of a minute ago."""
    with opened_book(jobs.state) as opened:
        aged = {file: at - 60 for file, at in opened.book.sessions.items()}
        opened.write(replace(opened.book, sessions=aged))
    return aged


@pytest.mark.full
def test_the_place_of_a_killed_run_in_the_foreground_is_given_back_by_a_queues_session(
    jobs: Jobs, service: RecordingService
) -> None:
    kept = KeptPlaces(jobs.state, [from_options(service.url)], print)
    task = TaskView("default", "fore-0", "fore-0", "fore", node="n", place="p1")
    kept.keep(task)
    [path] = (jobs.state / "places").iterdir()
    document = json.loads(path.read_text())
    document["owner"]["start_time"] -= 1  # which nobody has
    path.write_text(json.dumps(document))
    write_extender(jobs, **service.settings())

    [run] = submit(jobs, train=shell("true"))

    assert run.ended().state is RunState.FINISHED
    assert service.tasks("deallocateFunc") == ["fore-0", "train-0"]
    assert not path.exists()


@pytest.mark.full
def test_an_end_that_the_service_has_not_heard_of_is_told_again(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, **service.settings())
    service.answers["deallocateFunc"] = 500
    [first] = submit(jobs, first=shell("true"))
    assert first.ended().state is RunState.FINISHED
    assert list(book(jobs)) == ["first"]

    service.answers.clear()
    [second] = submit(jobs, second=shell("true"))

    assert second.ended().state is RunState.FINISHED
    assert service.tasks("deallocateFunc") == ["first-0", "first-0", "second-0"]
    first_id, again, other = [
        body["eventId"] for verb, body in service.questions if verb == "deallocateFunc"
    ]
    assert first_id == again != other
    assert book(jobs) == {}


@pytest.mark.full
def test_a_victim_that_the_service_names_runs_again(jobs: Jobs, service: RecordingService) -> None:
    write_extender(jobs, actions="allocate, preempt", queues=QUEUES, **service.settings())
    [victim] = submit(jobs, victim=lasting("victim"))
    victim.wait_for(RunState.RUNNING)
    service.answers["preemptable"] = {"status": 1, "victims": []}

    [urgent] = submit(jobs, urgent=lasting("urgent", priority=9))
    eventually(lambda: urgent.story.reason, PATIENCE)
    assert victim.story.state is RunState.RUNNING, "no victims is a veto"
    service.answers["preemptable"] = {
        "status": 1,
        "victims": [{"name": "victim-0", "namespace": "default"}],
    }
    [other] = submit(jobs, other=lasting("other"))
    urgent.wait_for(RunState.RUNNING)

    for name in ("urgent", "victim", "other"):
        end(jobs, name)
    for run in (urgent, victim, other):
        assert run.ended().state is RunState.FINISHED
    assert started(jobs) == ["victim", "urgent", "victim", "other"]
    assert "preemptable" in service.verbs
    assert_bodies_are_golden(service)
    assert service.held() == {}


@pytest.mark.full
def test_a_job_of_another_queue_that_the_service_names_gives_its_place_and_runs_again(
    jobs: Jobs, service: RecordingService
) -> None:
    """By itself a session would take the younger one."""
    queues: dict[str, dict[str, int]] = {"rich": {}, "poor": {}}
    write_extender(jobs, actions="reclaim, allocate", queues=queues, **service.settings())
    half = {"cpu": this_node({}).allocatable["cpu"] / 2}
    [older] = submit(jobs, older=lasting("older", queue="rich", resources=half))
    older.wait_for(RunState.RUNNING)
    [younger] = submit(jobs, younger=lasting("younger", queue="rich", resources=half))
    younger.wait_for(RunState.RUNNING)
    service.answers["reclaimable"] = {
        "status": 1,
        "victims": [{"name": "older-0", "namespace": "default"}],
    }

    [poor] = submit(jobs, poor=lasting("poor", queue="poor", resources=half))
    poor.wait_for(RunState.RUNNING)

    stopping = next(event["data"] for event in older.events if event["data"].get("to") == STOPPING)
    assert stopping["reason"] == "reclaimed by poor of queue poor"
    assert younger.story.state is RunState.RUNNING
    for name in ("poor", "older", "younger"):
        end(jobs, name)
    for run in (poor, older, younger):
        assert run.ended().state is RunState.FINISHED
    assert started(jobs) == ["older", "younger", "poor", "older"]
    assert older.states == [
        *("PENDING", "STARTING", "RUNNING", "STOPPING"),
        *("PENDING", "STARTING", "RUNNING", "FINISHED"),
    ]
    assert "reclaimable" in service.verbs
    assert_bodies_are_golden(service)
    assert service.held() == {}


@pytest.mark.full
def test_a_victim_whose_end_was_not_heard_waits_like_any_other(
    jobs: Jobs, service: RecordingService
) -> None:
    write_extender(jobs, actions="allocate, preempt", queues=QUEUES, **service.settings())
    [victim] = submit(jobs, victim=lasting("victim"))
    victim.wait_for(RunState.RUNNING)
    service.answers["deallocateFunc"] = 500

    [urgent] = submit(jobs, urgent=lasting("urgent", priority=9))
    urgent.wait_for(RunState.RUNNING)
    eventually(lambda: "holds 1 of 1 agents" in victim.story.reason, PATIENCE)
    assert victim.story.state is RunState.PENDING

    service.answers.clear()
    for name in ("urgent", "victim"):
        end(jobs, name)
    for run in (urgent, victim):
        assert run.ended().state is RunState.FINISHED
    assert started(jobs) == ["victim", "urgent", "victim"]
    assert service.held() == {}
    assert book(jobs) == {}


@pytest.mark.full
def test_a_place_that_was_taken_back_at_once_is_told_again_until_it_is_heard(
    jobs: Jobs, service: RecordingService
) -> None:
    """The book keeps it, although the run has no place and never had one."""
    write_extender(jobs, **service.settings())
    service.answers |= {"jobReady": {"status": False}, "deallocateFunc": 500}
    [first] = submit(jobs, first=shell("true"))
    eventually(lambda: "not ready" in first.story.reason, PATIENCE)
    assert service.held() == {"first-0": 1}

    service.answers.clear()
    [second] = submit(jobs, second=shell("true"))

    for run in (first, second):
        assert run.ended().state is RunState.FINISHED
    assert service.held() == {}
    assert book(jobs) == {}
