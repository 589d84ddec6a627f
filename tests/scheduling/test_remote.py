"""A remote extender as a decider: each verb at its own path, and only where it is its concern."""

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.extender_verbs import TASK_VERBS, Verb
from dlrover_cli.scheduling.model import SessionView
from dlrover_cli.scheduling.plugin import HookFailed, SessionPlugin
from dlrover_cli.scheduling.remote import RemoteExtender, Trouble
from dlrover_cli.scheduling.settings import ExtenderSettings
from dlrover_cli.services.address import parse_address
from tests.scheduling.samples import JOB, NODES, PLACED, QUEUE, RUNNING, SESSION, TASK
from tests.services.servers import Request, Server, answer, head, reset, serving

GOLDEN = Path(__file__).parent / "golden"
HOOKS: dict[Verb, Callable[[SessionPlugin], object]] = {
    Verb.SESSION_OPEN: lambda plugin: plugin.session_open(SESSION),
    Verb.JOB_ENQUEUEABLE: lambda plugin: plugin.job_enqueueable(JOB),
    Verb.JOB_ENQUEUED: lambda plugin: plugin.job_enqueued(JOB),
    Verb.QUEUE_OVERUSED: lambda plugin: plugin.queue_overused(QUEUE),
    Verb.PREDICATE: lambda plugin: plugin.predicate(TASK, NODES[0]),
    Verb.PRIORITIZE: lambda plugin: plugin.prioritize(TASK, NODES),
    Verb.PREEMPTABLE: lambda plugin: plugin.preemptable(TASK, RUNNING),
    Verb.RECLAIMABLE: lambda plugin: plugin.reclaimable(TASK, RUNNING),
    Verb.ALLOCATE: lambda plugin: plugin.allocated(PLACED),
    Verb.JOB_READY: lambda plugin: plugin.job_ready(JOB),
    Verb.DEALLOCATE: lambda plugin: plugin.deallocated(PLACED),
    Verb.SESSION_CLOSE: lambda plugin: plugin.session_close(SESSION),
}
ANYTHING = answer({"nodeScore": {}}, keep=True)


def settings(url: str, **changes: Any) -> ExtenderSettings:
    paths = {verb: f"my-{verb}" for verb in Verb}
    return replace(ExtenderSettings(parse_address(url), paths, 2.0), **changes)


def ids(server: Server) -> list[str]:
    return [request.json["eventId"] for request in server.requests if "task" in request.json]


@pytest.mark.parametrize("verb", Verb)
def test_a_verb_is_posted_to_its_own_path_with_the_golden_body(verb: Verb) -> None:
    with serving(ANYTHING) as server, RemoteExtender(settings(server.url)) as extender:
        HOOKS[verb](extender)
        [request] = server.requests
    assert request.path == f"/my-{verb}"
    golden = json.loads((GOLDEN / f"{verb}.json").read_text())
    if "eventId" in golden:
        golden["eventId"] = request.headers["idempotency-key"]
    assert request.json == golden


def test_a_hook_that_is_not_configured_asks_nobody() -> None:
    with serving(ANYTHING) as server:
        with RemoteExtender(settings(server.url, verbs={})) as extender:
            for hook in HOOKS.values():
                hook(extender)
        assert server.requests == []


@pytest.mark.parametrize("verb", Verb)
def test_only_what_is_about_a_task_is_limited_to_managed_resources(verb: Verb) -> None:
    limited = {"managed_resources": frozenset({"example.com/fpga"})}
    with serving(ANYTHING) as server:
        with RemoteExtender(settings(server.url, **limited)) as extender:
            HOOKS[verb](extender)
        assert bool(server.requests) is (verb not in TASK_VERBS)


def test_a_task_that_asks_for_a_managed_resource_is_asked_about() -> None:
    limited = {"managed_resources": frozenset({"nvidia.com/gpu", "x"})}
    with serving(ANYTHING) as server:
        with RemoteExtender(settings(server.url, **limited)) as extender:
            for verb in TASK_VERBS:
                HOOKS[verb](extender)
        assert len(server.requests) == len(TASK_VERBS)


@pytest.mark.parametrize("body", ["", "not JSON", "[]", '{"errorMessage": "x"}'])
def test_the_answer_to_a_notification_is_not_read(body: str) -> None:
    with serving(answer(body)) as server, RemoteExtender(settings(server.url)) as extender:
        for verb in (Verb.SESSION_OPEN, Verb.JOB_ENQUEUED, Verb.SESSION_CLOSE):
            HOOKS[verb](extender)


# ---- events ----------------------------------------------------------------------------------


def test_an_event_of_which_nobody_knows_whether_it_came_has_its_id_again() -> None:
    def behave(connection: socket.socket, request: Request, server: Server) -> None:
        if len(server.requests) == 1:
            reset(connection)
            return
        connection.sendall(head(headers={"Content-Length": "2"}) + b"{}")

    with serving(behave) as server, RemoteExtender(settings(server.url)) as extender:
        with pytest.raises(HookFailed):
            extender.allocated(PLACED)
        extender.allocated(PLACED)  # again
        extender.allocated(PLACED)  # another one
        first, again, other = ids(server)
    assert first == again != other


def test_the_end_of_a_place_has_the_same_id_in_another_session_and_process() -> None:
    place = replace(PLACED, place="p1")
    with serving(ANYTHING) as server:
        for session in ("a", "b"):
            with RemoteExtender(settings(server.url)) as extender:
                extender.session_open(SessionView(session))
                extender.deallocated(place)
                extender.deallocated(place)
        assert len(ids(server)) == 4
        assert len(set(ids(server))) == 1


def test_another_hold_on_the_same_node_is_another_event() -> None:
    with serving(ANYTHING) as server, RemoteExtender(settings(server.url)) as extender:
        extender.allocated(replace(PLACED, place="p1"))
        extender.allocated(replace(PLACED, place="p2"))
        assert len(set(ids(server))) == 2


def test_events_of_other_verbs_tasks_nodes_and_sessions_are_others() -> None:
    with serving(ANYTHING) as server, RemoteExtender(settings(server.url)) as extender:
        for session in ("a", "b"):
            extender.session_open(SessionView(session))
            extender.allocated(PLACED)
            extender.deallocated(PLACED)
            extender.allocated(replace(PLACED, node="node-2"))
            extender.allocated(replace(PLACED, uid="run-1/1"))
        assert len(set(ids(server))) == len(ids(server)) == 8


def test_an_event_that_was_answered_with_an_objection_is_over() -> None:
    with serving(answer({"errorMessage": "no"}, keep=True)) as server:
        with RemoteExtender(settings(server.url)) as extender:
            assert extender.allocated(PLACED) is not None
            assert extender.allocated(PLACED) is not None
        assert len(set(ids(server))) == 2


def test_an_objection_to_a_release_is_heard() -> None:
    troubles: list[Trouble] = []
    with (
        serving(answer({"errorMessage": "it is still there"})) as server,
        RemoteExtender(settings(server.url), troubles.append) as extender,
    ):
        extender.deallocated(PLACED)  # it was told, so that nobody has to tell it again
    [trouble] = troubles
    url = f"{server.url}/my-deallocateFunc"
    assert str(trouble) == f"extender {url} objects: it is still there; ignored"


# ---- a service that is dead --------------------------------------------------------------------


def test_a_dead_service_is_told_of_once_per_verb_and_session() -> None:
    def behave(connection: socket.socket, request: Request, server: Server) -> None:
        server.stopping.wait()

    troubles: list[Trouble] = []
    with serving(behave) as server:
        quick = settings(server.url, ignorable=True, http_timeout=0.1)
        with RemoteExtender(quick, troubles.append) as extender:
            for _ in range(20):
                assert extender.predicate(TASK, NODES[0]) is None
            extender.session_open(SESSION)
            for _ in range(20):
                assert extender.predicate(TASK, NODES[0]) is None
        assert server.connections == 1
    told = [(trouble.verb, "was not asked" in trouble.what) for trouble in troubles]
    assert told == [
        (Verb.PREDICATE, False),
        (Verb.PREDICATE, True),
        (Verb.SESSION_OPEN, True),
        (Verb.PREDICATE, True),
    ]


def test_questions_from_several_threads_get_their_own_answers() -> None:
    def behave(connection: socket.socket, request: Request, server: Server) -> bool:
        body = json.dumps({"errorMessage": request.json["node"]["name"]}).encode()
        connection.sendall(head(headers={"Content-Length": str(len(body))}) + body)
        return True

    wrong: list[str] = []

    def ask(extender: RemoteExtender, number: int) -> None:
        for turn in range(25):
            node = replace(NODES[0], name=f"node-{number}-{turn}")
            refusal = extender.predicate(TASK, node)
            if refusal is None or refusal.reason != node.name:
                wrong.append(f"{node.name}: {refusal}")

    with serving(behave) as server, RemoteExtender(settings(server.url)) as extender:
        threads = [threading.Thread(target=ask, args=(extender, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert server.connections <= 8
    assert wrong == []
