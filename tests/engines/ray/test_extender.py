"""A service decides on which nodes of the cluster agents run, also after a verdict."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs
from tests.engines.ray.test_submission import JOB
from tests.engines.ray.test_verdicts import start
from tests.scheduling.golden_bodies import assert_bodies_are_golden
from tests.scheduling.recording_service import RecordingService, recording_service

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def service(jobs: RayJobs) -> Iterator[RecordingService]:
    with ExitStack() as stack:
        with jobs.engine.entered():  # it listens where the cluster is
            service = stack.enter_context(recording_service())
        yield service


def options(service: RecordingService) -> tuple[str, str]:
    return f"--extender_url={service.url}", "--extender_timeout=10s"


def test_every_verb_of_placement_is_asked_in_the_order_of_a_session(
    jobs: RayJobs, service: RecordingService
) -> None:
    finished = jobs.start("--nnodes=2", *options(service), steps=3).finish(90)

    assert finished.returncode == 0, finished
    opened = service.verbs[: service.verbs.index("onSessionClose") + 1]
    assert opened[:4] == ["onSessionOpen", "jobEnqueueable", "jobEnqueued", "queueOverused"]
    assert opened[4 : opened.index("prioritize")] == ["predicate"] * 3
    assert opened[-4:] == ["allocateFunc", "allocateFunc", "jobReady", "onSessionClose"]
    [_, body] = service.questions[4]
    assert body["task"]["resources"] == {"cpu": 1}
    assert_bodies_are_golden(service)
    assert service.held() == {}


def test_a_node_that_a_verdict_gives_up_is_given_back(
    jobs: RayJobs, service: RecordingService, tmp_path: Path
) -> None:
    finished = start(jobs, tmp_path, "NODE", *options(service)).finish(90)

    assert finished.returncode == 0, finished
    assert len(service.tasks("allocateFunc")) == 3
    assert service.held() == {}


def test_a_global_verdict_is_a_full_session(
    jobs: RayJobs, service: RecordingService, tmp_path: Path
) -> None:
    finished = start(jobs, tmp_path, "GLOBAL", *options(service)).finish(90)

    assert finished.returncode == 0, finished
    assert service.verbs.count("jobEnqueueable") == service.verbs.count("jobReady") == 2
    assert len(service.tasks("allocateFunc")) == len(service.tasks("deallocateFunc")) == 4
    assert service.held() == {}


def test_a_submitted_job_asks_the_services_of_the_file_from_the_cluster(
    jobs: RayJobs, service: RecordingService
) -> None:
    (jobs.directory / "extender.yaml").write_text(json.dumps(service.settings()))
    jobs.training()
    path = jobs.directory / "job.yaml"
    path.write_text(JOB.format(name="train", directory=jobs.directory, steps=3))

    submitted = jobs.job("submit", "--extender", str(jobs.directory / "extender.yaml"), str(path))

    assert submitted.returncode == 0, submitted
    jobs.wait_for_state(jobs.run_directory().name, "FINISHED")
    assert service.verbs[:2] == ["onSessionOpen", "jobEnqueueable"]
    assert len(service.tasks("allocateFunc")) == 2
    assert service.held() == {}
