"""Many real runners at two queues, some of them killed: capacity holds and all of them end."""

import random
from collections import Counter

import pytest

from dlrover_cli.contracts.run_states import ENDED, RunState
from tests.admission.queued import book, submit, write_extender
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, shell
from tests.scheduling.recording_service import RecordingService, recording_service


def _most_held(service: RecordingService) -> dict[str, int]:
    """By queue, how many places were taken at the same time; names begin with their queue's.

    An event that was sent again since the service had failed counts once.
    """
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()
    seen: set[str] = set()
    for verb, body in service.questions:
        if verb in ("allocateFunc", "deallocateFunc") and body["eventId"] not in seen:
            seen.add(body["eventId"])
            queue = body["task"]["name"].split("-")[0]
            held[queue] += 1 if verb == "allocateFunc" else -1
            most[queue] = max(most[queue], held[queue])
    return most


def _kill_some(runs: list[SubmittedRun], number: int) -> list[SubmittedRun]:
    killed: list[SubmittedRun] = []
    while len(killed) < number:
        running = eventually(
            lambda: [
                run for run in runs if run not in killed and run.story.state is RunState.RUNNING
            ],
            PATIENCE,
        )
        victim = random.choice(running)
        if victim.owner.is_alive():
            victim.kill_owner()
            killed.append(victim)
    return killed


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "number, kills, capacity, faults",
    [
        pytest.param(12, 2, 2, 0.0, marks=pytest.mark.full),
        pytest.param(100, 10, 4, 0.03, marks=pytest.mark.soak),
    ],
)
def test_all_end_and_no_place_is_given_twice(
    jobs: Jobs, number: int, kills: int, capacity: int, faults: float
) -> None:
    described = {
        f"{queue}-{index}": shell("sleep 0.4", queue=queue, priority=random.choice((0, 0, 5)))
        for index in range(number // 2)
        for queue in ("red", "blue")
    }
    queues = {name: {"capacity": capacity} for name in ("red", "blue")}
    with recording_service() as service:
        service.is_faulty = lambda: random.random() < faults
        events = service.settings("allocateFunc", "deallocateFunc")
        write_extender(jobs, actions="allocate, preempt", queues=queues, **events)
        runs = submit(jobs, **described)

        killed = _kill_some(runs, kills)

        for run in runs:
            eventually(lambda run=run: run.story.state in ENDED, 600.0, what=f"the end of {run}")  # type: ignore[misc]
            if run not in killed:
                assert run.ended().state is RunState.FINISHED, run.log
        assert max(_most_held(service).values()) <= capacity
        service.is_faulty = lambda: False
        # Whoever was killed last is missed by the next one who looks.
        jobs.command("submit", "--wait", "--extender", "extender.yaml", _one_more(jobs))
        eventually(lambda: not service.held(), PATIENCE, what=f"all given back: {service.held()}")
    eventually(lambda: book(jobs) == {}, PATIENCE)
    assert {run.story.state for run in killed} <= {RunState.KILLED, RunState.FINISHED}


def _one_more(jobs: Jobs) -> object:
    return jobs.write({"red-last": shell("true", queue="red")})
