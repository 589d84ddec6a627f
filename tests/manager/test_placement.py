"""Agents run where a service lets them; it hears of each place once when taken, once when free."""

from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.placer import Placed, Question
from dlrover_cli.manager.placing import Demand
from dlrover_cli.manager.session_placer import PlacedJob, SessionPlacer, names_of
from dlrover_cli.scheduling.options import from_options
from dlrover_cli.scheduling.settings import SchedulingConfig
from tests.manager.managed_job import JobStarter
from tests.scheduling.recording_service import RecordingService, recording_service


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with recording_service() as service:
        yield service


class Asked:
    """A placer whose answers are waited for."""

    def __init__(self, service: RecordingService, least: int, most: int) -> None:
        extender = from_options(service.url, timeout="10s")
        job = PlacedJob("run", "train", Demand(least, most, {"CPU": 1.0}), {"CPU": "cpu"})
        self.said: list[str] = []
        self.placer = SessionPlacer(SchedulingConfig(extenders=(extender,)), job, self.said.append)
        self._answers: SimpleQueue[object] = SimpleQueue()

    def ask(self, nodes: str, **more: frozenset[str]) -> Placed:
        there = tuple(Node(f"id-{name}", name, "127.0.0.1", {"CPU": 1.0}) for name in nodes)
        self.placer.ask(Question(there, **more), self._answers.put)
        answer = self._answers.get(timeout=30)
        assert isinstance(answer, Placed)
        return answer


@pytest.fixture
def asked(service: RecordingService) -> Iterator[Asked]:
    asked = Asked(service, 2, 3)
    yield asked
    asked.placer.close()
    assert service.held() == {}


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
