"""Where Slurm is told which nodes to give, a service decides on which of them agents run."""

from collections.abc import Iterator

import pytest

from tests.engines.slurm.jobs import STEPS, SlurmJobs
from tests.scheduling.recording_service import RecordingService, recording_service

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with recording_service() as service:
        yield service


def test_a_service_chooses_among_the_nodes_that_are_named(
    submit: SlurmJobs, service: RecordingService
) -> None:
    """And before the whole job starts afresh, it is asked again and keeps it off one of them."""
    service.refused_nodes["n1"] = "its fan is loud"
    job = submit(
        *("--nnodes=2", "--slurm-arg=nodelist=n1,n2,n3", "--slurm-arg=spares=1"),
        *(f"--extender_url={service.url}", "--extender_timeout=10s", "--resources=cpu=1"),
        submit.verdict("GLOBAL_FAILOVER"),
        script=submit.training(failures=1),
    )
    job.wait_for_gate()
    service.refused_nodes = {"n2": "its fan is loud"}
    job.go()
    finished = job.finish()

    assert finished.returncode == 0, finished
    assert job.steps == list(range(1, STEPS + 1))
    before, after = ({fact["node"] for fact in job.started(attempt)} for attempt in (0, 1))
    assert (before, after) == ({"n2", "n3"}, {"n1", "n3"})
    assert service.verbs[:2] == ["onSessionOpen", "jobEnqueueable"]
    bodies = [body for verb, body in service.questions if verb == "predicate"]
    assert bodies[0]["task"]["resources"] == {"cpu": 1}
    assert service.held() == {}
