"""Fifty jobs from ten processes: all end, each is recorded once, and files and ledger agree.

With submitters that are killed, those runs that exist do so, whole submissions and no parts.
"""

import random
import time
from collections import Counter

import pytest

from tests.harness.waiting import eventually
from tests.jobs.submitted import Jobs, kill, shell

SUBMITTERS = 10
JOBS_OF_EACH = 5
PATIENCE = 110.0

FILE = {
    **{f"job{i}": shell(f"echo $DLROVER_RUN_ID >> done{i}") for i in range(JOBS_OF_EACH - 1)},
    "last": shell("echo $DLROVER_RUN_ID >> done-last", after=["job0"]),
}


def all_are_over(jobs: Jobs) -> bool:
    return all(run.files.events.exists() and run.story.state.is_over for run in jobs.existing())


def assert_well_recorded(jobs: Jobs, count_killed: bool) -> int:
    """How many runs there are; each has run once, and everybody says the same of it."""
    eventually(lambda: all_are_over(jobs), PATIENCE, what="all are over", interval=0.1)
    for run in jobs.existing():
        run.ended()
    listed, rows = jobs.listed(), jobs.rows()
    assert set(listed) == {run.run_id for run in jobs.existing()} == set(rows)
    assert Counter(run["state"] for run in listed.values()) == {"FINISHED": len(listed)}
    for run in jobs.existing():
        assert run.states == ["PENDING", "STARTING", "RUNNING", "FINISHED"]
        assert run.kinds.count("cleaned") == 1
        assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
        assert rows[run.run_id].steps == run.story.steps
    did = [line for path in jobs.project.glob("done*") for line in path.read_text().split()]
    assert sorted(did) == sorted(listed)
    submissions = Counter(run["submission"] for run in listed.values())
    assert set(submissions.values()) <= {JOBS_OF_EACH}
    assert count_killed or len(submissions) == SUBMITTERS
    assert not [path for path in (jobs.state / "runs").iterdir() if path.name.startswith(".")]
    return len(listed)


def submit_all(jobs: Jobs) -> None:
    path = jobs.write(FILE)
    submitters = [jobs.start("submit", path) for _ in range(SUBMITTERS)]
    assert [each.wait(PATIENCE) for each in submitters] == [0] * SUBMITTERS


def kill_some(jobs: Jobs, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    path = jobs.write(FILE)
    submitters = [jobs.start("submit", path) for _ in range(SUBMITTERS)]
    began = time.monotonic()
    # One is seen through: how long it takes on this machine, now, is when the others are at work.
    eventually(lambda: len(jobs.existing()) > 0, PATIENCE)
    for submitter in chance.sample(submitters, SUBMITTERS // 2):
        time.sleep(chance.uniform(0, 0.2) * (time.monotonic() - began))
        kill(submitter)
    for submitter in submitters:
        submitter.wait(PATIENCE)


@pytest.mark.full
def test_all_end_and_each_is_recorded_once(jobs: Jobs) -> None:
    submit_all(jobs)
    assert assert_well_recorded(jobs, count_killed=False) == SUBMITTERS * JOBS_OF_EACH


@pytest.mark.full
def test_also_when_submitters_are_killed(jobs: Jobs) -> None:
    kill_some(jobs, seed=random.randrange(1 << 30))
    assert assert_well_recorded(jobs, count_killed=True) >= SUBMITTERS // 2 * JOBS_OF_EACH


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_again_and_again(jobs: Jobs, number: int) -> None:
    kill_some(jobs, seed=random.randrange(1 << 30))
    assert_well_recorded(jobs, count_killed=True)
