"""The bodies that an extender gets: pinned by golden files, and readable in both dialects."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.extender import EXCHANGES, Verb
from dlrover_cli.contracts.extender_objects import GoResources, Node, Task
from dlrover_cli.scheduling.model import NodeView
from dlrover_cli.scheduling.wire import Writer
from tests.scheduling.samples import JOB, NODES, PLACED, QUEUE, RUNNING, SESSION, TASK

GOLDEN = Path(__file__).parent / "golden"


def body(verb: Verb) -> bytes:
    writer = Writer()
    match verb:
        case Verb.SESSION_OPEN:
            return writer.session_open(SESSION)
        case Verb.SESSION_CLOSE:
            return writer.session_close(SESSION)
        case Verb.JOB_ENQUEUEABLE | Verb.JOB_ENQUEUED | Verb.JOB_READY:
            return writer.job(JOB)
        case Verb.QUEUE_OVERUSED:
            return writer.queue(QUEUE)
        case Verb.PREDICATE:
            return writer.predicate(TASK, NODES[0])
        case Verb.PRIORITIZE:
            return writer.prioritize(TASK, NODES)
        case Verb.PREEMPTABLE | Verb.RECLAIMABLE:
            return writer.victims(TASK, RUNNING)
        case Verb.ALLOCATE | Verb.DEALLOCATE:
            return writer.event(PLACED, "event-1")


def go_decoded(value: Any) -> Any:
    """As Go matches names: those that differ in case only are one."""
    if isinstance(value, list):
        return [go_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    decoded: dict[str, Any] = {}
    for key, item in value.items():
        folded, item = key.casefold(), go_decoded(item)
        before = decoded.get(folded)
        decoded[folded] = {**before, **item} if isinstance(before, dict) else item
    return decoded


@pytest.mark.parametrize("verb", Verb)
def test_the_body_of_a_verb_is_the_golden_one(verb: Verb) -> None:
    golden = json.loads((GOLDEN / f"{verb}.json").read_text())
    assert json.loads(body(verb)) == golden


@pytest.mark.parametrize("verb", Verb)
def test_the_body_of_a_verb_is_what_its_model_writes(verb: Verb) -> None:
    request = EXCHANGES[verb].request.model_validate_json(body(verb))
    assert json.loads(request.model_dump_json(by_alias=True)) == json.loads(body(verb))


def test_the_document_s_request_is_part_of_the_body() -> None:
    sent = json.loads(body(Verb.PREDICATE))
    gib = 2**30
    assert sent["task"]["namespace"] == "default"
    assert sent["task"]["name"] == "train-0"
    assert sent["task"]["resources"] == {"cpu": 2, "memory": 4 * gib, "nvidia.com/gpu": 1}
    assert sent["node"]["name"] == "node-1"
    assert sent["node"]["allocatable"] == {"cpu": 8, "memory": 16 * gib, "nvidia.com/gpu": 8}


def test_a_service_in_go_reads_volcano_s_structs() -> None:
    sent = go_decoded(json.loads(body(Verb.PREDICATE)))
    task, node = sent["task"], sent["node"]
    assert (task["uid"], task["job"], task["name"]) == ("run-1/0", "run-1", "train-0")
    assert task["resreq"]["millicpu"] == 2000
    assert task["resreq"]["scalarresources"] == {"nvidia.com/gpu": 1000}
    assert node["allocatable"]["millicpu"] == 8000
    assert node["allocatable"]["memory"] == 16 * 2**30
    assert node["idle"]["scalarresources"] == {"nvidia.com/gpu": 5000}


def test_a_name_in_two_cases_has_one_value() -> None:
    for verb in Verb:
        assert_same_in_both_cases(json.loads(body(verb)))


def assert_same_in_both_cases(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            assert_same_in_both_cases(item)
    if isinstance(value, dict):
        for lower in (key for key in value if key[0].islower()):
            upper = value.get(lower.capitalize())
            if isinstance(upper, dict):
                assert upper == json.loads(
                    GoResources.of(value[lower]).model_dump_json(by_alias=True)
                )
            elif upper is not None:
                assert upper == value[lower]
        for item in value.values():
            assert_same_in_both_cases(item)


def test_what_volcano_sends_is_read_with_the_same_models() -> None:
    go = {"MilliCPU": 1500, "Memory": 1024, "ScalarResources": {"nvidia.com/gpu": 2000}}
    wanted = {"cpu": 1.5, "memory": 1024, "nvidia.com/gpu": 2}
    task = Task.model_validate({"UID": "u", "Name": "t", "Namespace": "n", "Resreq": go})
    assert (task.name, task.namespace, task.resources) == ("t", "n", wanted)
    node = Node.model_validate({"Name": "n1", "Allocatable": go, "Idle": go})
    assert (node.name, node.allocatable, node.idle.amounts()) == ("n1", wanted, wanted)


def test_what_the_document_shows_is_read_with_the_same_models() -> None:
    node = Node.model_validate({"name": "node-1", "allocatable": {"cpu": 8, "memory": 16384}})
    assert node.allocatable == {"cpu": 8, "memory": 16384}
    assert node.go_allocatable == GoResources.of({"cpu": 8, "memory": 16384})


def test_a_node_that_has_changed_is_written_anew() -> None:
    writer = Writer()
    first = writer.predicate(TASK, NodeView("n", {"cpu": 1.0}))
    assert writer.predicate(TASK, NodeView("n", {"cpu": 2.0})) != first


def test_names_that_need_escapes_arrive_as_they_are() -> None:
    name = 'a"b\\c\u2028é'
    sent = json.loads(Writer().prioritize(TASK, [NodeView(name)]))
    assert sent["nodes"][0]["name"] == name
