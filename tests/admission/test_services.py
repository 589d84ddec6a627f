"""A service that decides about submitted jobs hears of each place, taken and free again."""

from collections.abc import Iterator

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.admission.queued import book, end, lasting, started, submit, write_extender
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, shell
from tests.scheduling.recording_service import RecordingService, recording_service

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
