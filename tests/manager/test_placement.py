"""Agents run where a service lets them; it hears of each place once when taken, once when free."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.placer import Placed, Question
from dlrover_cli.manager.placing import Demand
from dlrover_cli.manager.session_placer import PlacedJob, SessionPlacer, names_of
from dlrover_cli.scheduling.options import from_options
from dlrover_cli.scheduling.settings import SchedulingConfig
from tests.harness.waiting import eventually
from tests.manager.managed_job import JobStarter
from tests.manager.test_manager_live import with_verdict
from tests.scheduling.golden_bodies import assert_bodies_are_golden
from tests.scheduling.recording_service import RecordingService, recording_service


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with recording_service() as service:
        yield service


class Asked:
    """A placer whose answers are waited for."""

    def __init__(self, service: RecordingService, least: int, most: int, state: Path) -> None:
        extender = from_options(service.url, timeout="10s")
        job = PlacedJob("run", "train", Demand(least, most, {"CPU": 1.0}), {"CPU": "cpu"})
        self.said: list[str] = []
        config = SchedulingConfig(extenders=(extender,))
        self.placer = SessionPlacer(config, job, self.said.append, state)
        self._answers: SimpleQueue[object] = SimpleQueue()

    def ask(self, nodes: str, **more: frozenset[str]) -> Placed:
        there = tuple(Node(f"id-{name}", name, "127.0.0.1", {"CPU": 1.0}) for name in nodes)
        self.placer.ask(Question(there, **more), self._answers.put)
        answer = self._answers.get(timeout=30)
        assert isinstance(answer, Placed)
        return answer


@pytest.fixture
def asked(service: RecordingService, tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(service, 2, 3, tmp_path)
    yield asked
    asked.placer.close()
    assert service.held() == {}
    assert list(tmp_path.glob("places/*")) == []


def test_a_job_gets_nodes_by_their_scores(asked: Asked, service: RecordingService) -> None:
    service.answers["prioritize"] = {"nodeScore": {"d": 9.0, "b": 8.0, "c": 7.0, "a": 1.0}}

    answer = asked.ask("abcd")

    assert list(answer.places.values()) == ["id-d", "id-b", "id-c"]
    assert service.verbs.count("predicate") == 4
    assert service.questions[-4][1]["task"]["resources"] == {"cpu": 1}


def test_less_than_the_minimum_is_nothing(asked: Asked, service: RecordingService) -> None:
    assert asked.ask("a").places == {}
    assert service.held() == {}


def test_a_lost_node_is_given_back_and_one_more_is_taken(
    asked: Asked, service: RecordingService
) -> None:
    places = asked.ask("ab").places
    lost = next(task for task, node in places.items() if node == "id-a")
    before = len(service.questions)

    asked.placer.ended(lost)
    answer = asked.ask("abc", excluded=frozenset({"id-a"}))

    assert list(answer.places.values()) == ["id-c"]
    small = [verb for verb, _ in service.questions[before:]]
    assert small.count("deallocateFunc") == small.count("allocateFunc") == 1
    assert "jobEnqueueable" not in small, "it is in its queue already"


def test_doubtful_nodes_are_used_last(asked: Asked) -> None:
    answer = asked.ask("abcd", doubtful=frozenset({"id-a"}))

    assert set(answer.places.values()) == {"id-b", "id-c", "id-d"}


def test_a_refusal_is_said_and_asked_again(asked: Asked, service: RecordingService) -> None:
    service.answers["predicate"] = {"code": 1, "errorMessage": "under repair"}
    refused = asked.ask("ab")
    service.answers.clear()

    assert refused.places == {}
    assert "under repair" in refused.reason
    assert len(asked.ask("ab").places) == 2


def test_an_end_that_nobody_heard_of_is_told_again(asked: Asked, service: RecordingService) -> None:
    [first, _] = asked.ask("ab").places
    service.answers["deallocateFunc"] = 500
    asked.placer.ended(first)
    asked.ask("ab", excluded=frozenset({"id-a"}))
    assert service.held()["train-0"] == 1

    service.answers.clear()
    asked.ask("ab", excluded=frozenset({"id-a"}))

    assert "train-0" not in service.held()
    assert any("500" in line for line in asked.said)


def test_a_job_that_starts_afresh_is_a_full_session_and_stays_where_it_may(
    asked: Asked, service: RecordingService
) -> None:
    places = asked.ask("abc").places
    service.answers["prioritize"] = {"nodeScore": {"d": 9.0}}
    before = len(service.questions)

    answer = asked.ask("abcd", again=frozenset(places))

    assert sorted(answer.places.values()) == sorted(places.values())
    assert not answer.places.keys() & places.keys(), "a place that was given back is another one"
    assert answer.again == frozenset(places)
    verbs = [verb for verb, _ in service.questions[before:]]
    assert list(dict.fromkeys(verbs)) == [
        *("onSessionOpen", "deallocateFunc", "jobEnqueueable", "jobEnqueued", "queueOverused"),
        *("predicate", "prioritize", "allocateFunc", "jobReady", "onSessionClose"),
    ]
    assert verbs.count("deallocateFunc") == verbs.count("allocateFunc") == 3
    assert_bodies_are_golden(service)


def test_of_a_job_that_starts_afresh_only_those_move_whose_nodes_are_refused(
    asked: Asked, service: RecordingService
) -> None:
    places = asked.ask("abc").places
    service.refused_nodes["b"] = "its fan is loud"

    answer = asked.ask("abcd", again=frozenset(places))

    assert sorted(answer.places.values()) == ["id-a", "id-c", "id-d"]
    assert answer.refused["id-b"].startswith("its fan is loud")


def test_a_job_that_may_not_start_afresh_has_no_place_left(
    asked: Asked, service: RecordingService
) -> None:
    places = asked.ask("abc").places
    service.answers["jobEnqueueable"] = {"status": -1}

    answer = asked.ask("abc", again=frozenset(places))

    assert answer.places == {}
    assert "does not let it into queue" in answer.reason
    assert service.held() == {}


def test_nodes_of_one_host_are_told_by_their_ids_and_names_stay() -> None:
    twins = [Node("1", "host", ""), Node("2", "host", ""), Node("3", "other", "")]

    names = names_of(twins, {})

    assert names == {"1": "1", "2": "2", "3": "other"}
    assert names_of([twins[0]], names)["1"] == "1"
    assert names_of([Node("4", "other", "")], names)["4"] == "4"


@pytest.mark.full
def test_a_managed_job_runs_where_the_service_lets_it(
    manage: JobStarter, service: RecordingService
) -> None:
    service.answers["prioritize"] = {"nodeScore": {"n3": 9.0}}
    job = manage("n1 n2 n3", f"--extender_url={service.url}", "--extender_timeout=10s")
    job.wait_for_steps(0, 2)

    assert job.placed()[0] == "n3"
    assert len(service.held()) == 2
    assert job.finish().returncode == 0
    assert service.held() == {}
    assert service.verbs[0] == "onSessionOpen"
    assert service.verbs[-1] == "onSessionClose"


@pytest.mark.full
def test_the_successor_of_a_lost_node_is_placed_by_a_session(
    manage: JobStarter, service: RecordingService
) -> None:
    service.answers["prioritize"] = {"nodeScore": {"n1": 9.0, "n2": 8.0}}
    job = manage("n1 n2 n3", f"--extender_url={service.url}", "--extender_timeout=10s")
    job.wait_for_steps(0, 2)

    job.order("lose_node n2")
    job.wait_for_steps(1, 2)

    assert job.placed() == ["n1", "n2", "n3"]
    assert len(service.held()) == 2
    assert service.tasks("deallocateFunc") == ["steps-1"]
    assert job.finish().returncode == 0
    assert service.held() == {}


@pytest.mark.full
def test_a_job_that_starts_afresh_asks_for_its_places_again(
    manage: JobStarter, service: RecordingService
) -> None:
    """One node is refused by now: its agent moves, the other one stays as it is."""
    service.answers["prioritize"] = {"nodeScore": {"n1": 9.0, "n2": 8.0}}
    verdict = with_verdict(manage, "GLOBAL_FAILOVER")
    job = manage("n1 n2 n3", f"--extender_url={service.url}", "--extender_timeout=10s", verdict)
    job.wait_for_steps(0, 2)
    before = len(service.questions)
    service.answers.clear()
    service.refused_nodes["n2"] = "its fan is loud"

    job.fail(0, 7, attempt=0)
    job.wait_for_steps(1, 2)

    assert job.placed() == ["n1", "n2", "n3"]
    verbs = [verb for verb, _ in service.questions[before:]]
    assert list(dict.fromkeys(verbs))[:3] == ["onSessionOpen", "deallocateFunc", "jobEnqueueable"]
    assert verbs.count("deallocateFunc") == verbs.count("allocateFunc") == 2
    assert {fact["restart_count"] for fact in job.started(1)} == {0}
    assert job.events("replacing") == [], "a move costs no relaunch"
    [fence] = job.events("fence")
    assert fence["reason"].startswith("its fan is loud")
    finished = job.finish()
    assert finished.returncode == 0
    assert "n2 is left: its fan is loud" in finished.stderr
    assert service.held() == {}


@pytest.mark.full
def test_a_job_that_is_refused_when_it_starts_afresh_waits_and_goes_on_counting(
    manage: JobStarter, service: RecordingService
) -> None:
    verdict = with_verdict(manage, "GLOBAL_FAILOVER")
    job = manage("n1 n2", f"--extender_url={service.url}", "--extender_timeout=10s", verdict)
    job.wait_for_steps(0, 2)
    service.answers["jobEnqueueable"] = {"status": -1}

    job.fail(0, 7, attempt=0)
    job.wait_for_event("agent_ended", exit_code=81)
    eventually(lambda: service.held() == {}, 30.0)
    assert job.events("placement")[-1]["reason"].endswith("does not let it into queue default")
    service.answers.clear()
    job.order("add_node n3")
    job.wait_for_steps(1, 2)

    assert len(job.placed()) == 4
    assert job.finish().returncode == 0
    assert job.result["generation"] == 1
    assert service.held() == {}


@pytest.mark.full
def test_a_job_that_starts_afresh_where_it_was_keeps_its_agents(
    manage: JobStarter, service: RecordingService
) -> None:
    verdict = with_verdict(manage, "GLOBAL_FAILOVER")
    job = manage("n1 n2", f"--extender_url={service.url}", "--extender_timeout=10s", verdict)
    job.wait_for_steps(0, 2)

    for attempt in range(2):
        job.fail(1, 7, attempt=attempt)
        job.wait_for_steps(attempt + 1, 2)

    assert job.placed() == ["n1", "n2"]
    assert job.finish().returncode == 0
    assert len(service.tasks("allocateFunc")) == len(service.tasks("deallocateFunc")) == 6
