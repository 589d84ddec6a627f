"""A runner that is suspended while it holds a session: those who wait say who it is, and can go."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.admission.queued import book, started, submit, write_extender
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, shell
from tests.scheduling.recording_service import RecordingService, recording_service


@pytest.fixture
def service(jobs: Jobs) -> Iterator[RecordingService]:
    with recording_service() as service:
        write_extender(jobs, **{**service.settings(), "extender.httpTimeout": "60s"})
        yield service


def suspended_within(verb: str, jobs: Jobs, service: RecordingService) -> SubmittedRun:
    """A run whose runner is suspended in the session that asks this."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer_late() -> None:
        is_asked.set()
        may_answer.wait(PATIENCE)

    service.answers[verb] = answer_late
    [run] = submit(jobs, first=shell("true"))
    assert is_asked.wait(PATIENCE)
    assert run.owner.signal(signal.SIGSTOP)
    eventually(run.owner.is_suspended)
    service.answers.clear()
    may_answer.set()
    return run


def test_who_waits_for_a_suspended_runner_says_so_and_can_be_stopped(
    jobs: Jobs, service: RecordingService
) -> None:
    first = suspended_within("onSessionOpen", jobs, service)
    [second] = submit(jobs, second=shell("echo second >> started"))
    pid = first.owner.pid
    why = (
        f"process {pid}, the runner of {first.run_id}, is suspended and holds all queues: "
        f"`kill -CONT {pid}` lets it go on, `kill -9 {pid}` gives it up"
    )

    eventually(lambda: second.story.reason == why, PATIENCE, what=f"{second.run_id} says: {why}")

    assert jobs.listed()[second.run_id]["reason"] == why
    assert second.log.count(why) == 1
    jobs.command("stop", second.run_id)
    assert second.story.state is RunState.KILLED
    assert first.owner.signal(signal.SIGCONT)
    assert first.ended().state is RunState.FINISHED
    second.ended()
    assert started(jobs) == []
    eventually(lambda: book(jobs) == {}, PATIENCE)
    assert service.held() == {}


@pytest.mark.full
@pytest.mark.parametrize("by", [signal.SIGCONT, signal.SIGKILL])
@pytest.mark.parametrize("verb", ["onSessionOpen", "allocateFunc", "deallocateFunc"])
def test_both_ways_out_let_those_who_wait_go_on(
    jobs: Jobs, service: RecordingService, verb: str, by: signal.Signals
) -> None:
    first = suspended_within(verb, jobs, service)
    [second] = submit(jobs, second=shell("true"))
    eventually(lambda: "is suspended" in second.story.reason, PATIENCE)

    assert first.owner.signal(by)

    assert second.ended().state is RunState.FINISHED
    first.ended()
    jobs.command("stop", first.run_id)  # one that was killed holds its place until then
    eventually(lambda: book(jobs) == {}, PATIENCE)
    assert heard(service, "allocateFunc") == heard(service, "deallocateFunc")


def heard(service: RecordingService, verb: str) -> Counter[str]:
    """How often each task had such an event; what was said twice has the same id."""
    events = {body["eventId"]: body for each, body in service.questions if each == verb}
    return Counter(body["task"]["name"] for body in events.values())
