"""Services that misbehave: a defined outcome for each, ignorable or not, and in time.

An error of the service is as if the hook were not configured, or fails the decision. What the
service means is heeded either way.
"""

import gzip
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.scheduling.plugin import HookFailed, Refusal, Victims, Vote
from dlrover_cli.scheduling.remote import RemoteExtender, Trouble
from dlrover_cli.scheduling.settings import ExtenderSettings
from dlrover_cli.services.address import parse_address
from tests.scheduling.samples import JOB, NODES, PLACED, QUEUE, RUNNING, SESSION, TASK
from tests.services.servers import Behaviour, Request, Server, answer, drip, head, reset, serving
from tests.services.stopwatch import Stopwatch

DEADLINE = 0.3
"""For services that let it pass."""
AMPLE = 10.0
"""For all others, so that a busy machine does not make them silent."""
SLACK = 0.2
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Bad:
    """A service, what it is asked, and what is said about it."""

    behaviour: Behaviour
    words: str
    verb: Verb = Verb.PREDICATE
    is_slow: bool = False


def raw(data: bytes) -> Behaviour:
    def behave(connection: socket.socket, request: Request, server: Server) -> None:
        connection.sendall(data)

    return behave


def reset_at_once(connection: socket.socket, request: Request, server: Server) -> None:
    reset(connection)


def reset_mid_body(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(head(headers={"Content-Length": "100"}) + b'{"code"')
    reset(connection)


def close_at_once(connection: socket.socket, request: Request, server: Server) -> None:
    return None


def silent(connection: socket.socket, request: Request, server: Server) -> None:
    server.stopping.wait()


def drip_headers(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    drip(connection, server, b"z")


def drip_body(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(head(headers={"Content-Length": "100000"}))
    drip(connection, server, b" ")


def drip_error(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(head("500 Oh", headers={"Content-Length": "100000"}))
    drip(connection, server, b"x")


def redirect_to_itself(connection: socket.socket, request: Request, server: Server) -> None:
    assert len(server.requests) == 1
    headers = {"Location": f"{server.url}{request.path}", "Content-Length": "0"}
    connection.sendall(head("307 Temporary Redirect", headers))


def too_large_without_length(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(head() + b" " * (10 * MIB + 1))


def too_large_in_chunks(connection: socket.socket, request: Request, server: Server) -> None:
    connection.sendall(head(headers={"Transfer-Encoding": "chunked"}))
    for _ in range(11):
        connection.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
    connection.sendall(b"0\r\n\r\n")


GZIP = {"Content-Encoding": "gzip"}
BOMB = gzip.compress(b" " * (20 * MIB), compresslevel=9)
ENDLESS_HEADERS = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"
NOT_JSON = "something that is not JSON"
P, S, V = Verb.PREDICATE, Verb.PRIORITIZE, Verb.PREEMPTABLE

ERRORS: dict[str, Bad] = {
    # Connections
    "closed": Bad(close_at_once, "closed the connection without an answer"),
    "reset": Bad(reset_at_once, "broke the connection off"),
    "reset mid-body": Bad(reset_mid_body, "broke the connection off"),
    "silent": Bad(silent, "did not answer within 0.3 s", is_slow=True),
    "dripping headers": Bad(drip_headers, "did not answer within 0.3 s", is_slow=True),
    "dripping body": Bad(drip_body, "did not answer within 0.3 s", is_slow=True),
    "dripping error": Bad(drip_error, "Server Error, and did not say why in time", is_slow=True),
    # Statuses
    "201": Bad(answer('{"code": 0}', "201 Created"), "answered 201 Created"),
    "204": Bad(answer("", "204 No Content"), "answered 204 No Content"),
    "302": Bad(answer("", "302 Found", headers={"Location": "/x"}), "redirects are not followed"),
    "404": Bad(answer("no such verb", "404 Not Found"), "answered 404 Not Found: no such verb"),
    "500": Bad(answer('{"code": 0}', "500 Oh"), 'Server Error: {"code": 0}'),
    "redirect loop": Bad(redirect_to_itself, "redirects are not followed"),
    # HTTP
    "no HTTP": Bad(raw(b"SSH-2.0-OpenSSH\r\n"), "did not answer in HTTP"),
    "endless headers": Bad(raw(ENDLESS_HEADERS), "did not answer in HTTP"),
    "long header": Bad(raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000), "did not answer in HTTP"),
    "lying length, too long": Bad(answer('{"code": 0}', length=50), "broke off after 11 of 50"),
    "lying length, too short": Bad(answer('{"code": 0}', length=5), NOT_JSON),
    "broken chunks": Bad(
        raw(head(headers={"Transfer-Encoding": "chunked"}) + b"zz\r\n{}\r\n"),
        "broke its answer off",
    ),
    # Sizes
    "10 MiB and a byte": Bad(answer(b" " * (10 * MIB + 1)), "more than 10 MiB"),
    "the same, unannounced": Bad(too_large_without_length, "more than 10 MiB"),
    "the same, in chunks": Bad(too_large_in_chunks, "more than 10 MiB"),
    "gzip bomb": Bad(answer(BOMB, headers=GZIP), "more than 10 MiB"),
    "gzip that is none": Bad(answer('{"code": 0}', headers=GZIP), "is not gzip"),
    "gzip that breaks off": Bad(
        answer(gzip.compress(b'{"code": 0}')[:-5], headers=GZIP), "gzip that breaks off"
    ),
    "unknown encoding": Bad(answer("{}", headers={"Content-Encoding": "br"}), "encoding 'br'"),
    # JSON
    "empty": Bad(answer(""), "an empty body"),
    "null": Bad(answer("null"), "null, where an object belongs"),
    "list": Bad(answer("[]"), "a list, where an object belongs"),
    "text": Bad(answer('"yes"'), "a text, where an object belongs"),
    "true": Bad(answer("true"), "a truth value, where an object belongs"),
    "trailing garbage": Bad(answer('{"code": 0} oops'), NOT_JSON),
    "two answers": Bad(answer('{"code": 1}{"code": 0}'), NOT_JSON),
    "HTML": Bad(answer("<html>It works</html>"), NOT_JSON),
    "byte order mark": Bad(answer(b'\xef\xbb\xbf{"code": 0}'), "a byte order mark"),
    "UTF-16": Bad(answer('{"code": 0}'.encode("utf-16")), "not UTF-8"),
    "not UTF-8": Bad(answer(b'{"status": "\xff"}'), "not UTF-8 at byte 12"),
    "NaN": Bad(answer('{"nodeScore": {"node-1": NaN}}'), "holds NaN", S),
    "Infinity": Bad(answer('{"nodeScore": {"node-1": -Infinity}}'), "holds -Infinity", S),
    "1e999": Bad(answer('{"nodeScore": {"node-1": 1e999}}'), "holds 1e999", S),
    "a million digits": Bad(answer('{"code": ' + "1" * MIB + "}"), "too many digits"),
    "deep nesting": Bad(answer('{"x": ' + "[" * 100_000), "nested too deeply"),
    "deep nesting, closed": Bad(
        answer('{"x": ' + "[" * 50_000 + "]" * 50_000 + "}"), "nested too deeply"
    ),
    "ten megabytes of lists": Bad(
        answer(b'{"x": [' + b"[]," * 3_400_000 + b"[]]}"), "more than 50,000 values"
    ),
    "commas within bounds": Bad(answer(b"[" + b"[]," * 49_990 + b"[]]"), "a list, where an"),
    "more victims than tasks": Bad(
        answer(b'{"status": 1, "victims": [' + b"{}," * 49_990 + b"{}]}"), "'victims' that", V
    ),
    # Values
    "bool for int": Bad(answer({"code": True}), "'code' that cannot be used"),
    "float for int": Bad(answer({"code": 1.0}), "'code' that cannot be used"),
    "text for int": Bad(answer({"code": "1"}), "'code' that cannot be used"),
    "int that no machine has": Bad(answer({"code": 2**64}), "'code' that cannot be used"),
    "int for text": Bad(answer({"errorMessage": 1}), "'errorMessage' that cannot be used"),
    "bool for status": Bad(answer({"status": True}), "'status' that", Verb.JOB_ENQUEUEABLE),
    "int for bool": Bad(answer({"status": 1}), "'status' that", Verb.JOB_READY),
    "text for bool": Bad(answer({"overused": "true"}), "'overused' that", Verb.QUEUE_OVERUSED),
    "bool for score": Bad(answer({"nodeScore": {"node-1": True}}), "'nodeScore.node-1'", S),
    "text for score": Bad(answer({"nodeScore": {"node-1": "9"}}), "'nodeScore.node-1'", S),
    "list of scores": Bad(answer({"nodeScore": [1, 2]}), "'nodeScore' that", S),
    "no scores": Bad(answer("{}"), "neither a 'nodeScore' nor an 'errorMessage'", S),
    "unknown node": Bad(answer({"nodeScore": {"node-9": 1}}), "node 'node-9', which it was not", S),
    "foreign victim": Bad(
        answer({"status": 1, "victims": [{"UID": "run-9/9"}]}), "victim 'run-9/9', which", V
    ),
    "victim without a name": Bad(answer({"status": 1, "victims": [{}]}), "the victim '/'", V),
    "victim under another name": Bad(
        answer({"status": 1, "victims": [{"UID": "run-0/0", "name": "other"}]}), "the victim", V
    ),
    "null victim": Bad(answer({"status": 1, "victims": [None]}), "'victims.0' that", V),
    "the evictor as victim": Bad(
        answer({"status": 1, "victims": [{"UID": TASK.uid}]}), "which it was not offered", V
    ),
    "notification refused": Bad(answer("", "500 Oh"), "answered 500", Verb.SESSION_OPEN),
    "event without an answer": Bad(answer(""), "an empty body", Verb.ALLOCATE),
}

WITHOUT: dict[Verb, object] = {
    Verb.SESSION_OPEN: None,
    Verb.JOB_ENQUEUEABLE: Vote.ABSTAIN,
    Verb.QUEUE_OVERUSED: False,
    Verb.PREDICATE: None,
    Verb.PRIORITIZE: {},
    Verb.PREEMPTABLE: None,
    Verb.JOB_READY: True,
    Verb.ALLOCATE: None,
}
"""What follows where a hook is not configured."""


def asked(extender: RemoteExtender, verb: Verb) -> object:
    ask: dict[Verb, Callable[[], object]] = {
        Verb.SESSION_OPEN: lambda: extender.session_open(SESSION),
        Verb.JOB_ENQUEUEABLE: lambda: extender.job_enqueueable(JOB),
        Verb.QUEUE_OVERUSED: lambda: extender.queue_overused(QUEUE),
        Verb.PREDICATE: lambda: extender.predicate(TASK, NODES[0]),
        Verb.PRIORITIZE: lambda: extender.prioritize(TASK, NODES),
        Verb.PREEMPTABLE: lambda: extender.preemptable(TASK, RUNNING),
        Verb.JOB_READY: lambda: extender.job_ready(JOB),
        Verb.ALLOCATE: lambda: extender.allocated(PLACED),
    }
    watch = Stopwatch()
    try:
        with watch:
            return ask[verb]()
    finally:
        assert watch.seconds < DEADLINE + SLACK
        assert watch.cpu_seconds < SLACK  # so much may come after the deadline


def settings(url: str, ignorable: bool, deadline: float = AMPLE) -> ExtenderSettings:
    verbs = {verb: verb.value for verb in Verb}
    return ExtenderSettings(parse_address(url), verbs, deadline, ignorable)


def check(url: str, ignorable: bool, bad: Bad) -> None:
    verb, words = bad.verb, bad.words
    deadline = DEADLINE if bad.is_slow else AMPLE
    troubles: list[Trouble] = []
    with RemoteExtender(settings(url, ignorable, deadline), troubles.append) as extender:
        if ignorable:
            assert asked(extender, verb) == WITHOUT[verb]
        else:
            with pytest.raises(HookFailed) as caught:
                asked(extender, verb)
            assert f"extender {url}/{verb} " in caught.value.message
            assert words in caught.value.message
            assert len(caught.value.message) < 600
    [trouble] = troubles
    assert (trouble.verb, trouble.is_ignored) == (verb, ignorable)
    assert f"{url}/{verb} " in str(trouble)
    assert words in str(trouble)


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_service_is_no_hook_or_fails_the_decision(
    name: str, ignorable: bool
) -> None:
    bad = ERRORS[name]
    with serving(bad.behaviour) as server:
        check(server.url, ignorable, bad)


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
def test_a_service_that_is_not_there_is_no_hook_or_fails_the_decision(ignorable: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    check(f"http://127.0.0.1:{port}", ignorable, Bad(silent, "refused the connection"))


MEANT: dict[str, tuple[Any, Verb, object]] = {
    "message": ({"code": 0, "errorMessage": "bad GPU"}, P, ("bad GPU", True)),
    "message in Volcano's place": ({"status": "bad GPU", "code": 2}, P, ("bad GPU", False)),
    "code without a message": ({"code": 1}, P, ("it answers code 1, error", True)),
    "code for which victims help": ({"code": 2}, P, ("it answers code 2, unschedulable", False)),
    "unknown code": ({"code": 42}, P, ("it answers code 42, which has no meaning", True)),
    "negative code": ({"code": -1}, P, ("it answers code -1, which has no meaning", True)),
    "names in another case": ({"CODE": 3, "ErrorMessage": "no"}, P, ("no", True)),
    "allocation refused": ({"errorMessage": "licence"}, Verb.ALLOCATE, ("licence", False)),
    "nothing refused": ({}, P, None),
    "zero": ({"code": 0, "errorMessage": "", "status": None}, P, None),
    "scores": ({"nodeScore": {"node-1": 80.5, "node-2": -3}}, S, {"node-1": 80.5, "node-2": -3.0}),
    "no score for some": ({"nodeScore": {}}, S, {}),
    "rejected": ({"status": -7}, Verb.JOB_ENQUEUEABLE, Vote.REJECT),
    "abstained": ({"status": 0}, Verb.JOB_ENQUEUEABLE, Vote.ABSTAIN),
    "permitted": ({"status": 2}, Verb.JOB_ENQUEUEABLE, Vote.PERMIT),
    "overused": ({"overused": True}, Verb.QUEUE_OVERUSED, True),
    "not ready": ({"status": False}, Verb.JOB_READY, False),
    "not ready, as Go leaves it out": ({}, Verb.JOB_READY, False),
    "victims abstained from": ({"status": 0, "victims": [{"UID": "x"}]}, V, None),
    "veto": ({"status": 1}, V, Victims()),
    "victims by UID": (
        {"status": 1, "victims": [{"UID": "run-0/1"}, {"UID": "run-0/1"}]},
        V,
        Victims(frozenset({"run-0/1"})),
    ),
    "victims by name": (
        {"status": -1, "victims": [{"Namespace": "default", "Name": "batch-0"}]},
        V,
        Victims(frozenset({"run-0/0"})),
    ),
}


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
@pytest.mark.parametrize("name", MEANT)
def test_what_a_service_means_is_heeded(name: str, ignorable: bool) -> None:
    said, verb, expected = MEANT[name]
    troubles: list[Trouble] = []
    with (
        serving(answer(json.dumps(said))) as server,
        RemoteExtender(settings(server.url, ignorable), troubles.append) as extender,
    ):
        decision = asked(extender, verb)
    if isinstance(decision, Refusal):
        assert decision.by == f"extender {server.url}"
        decision = (decision.reason, decision.is_final)
    assert decision == expected
    assert troubles == []


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
def test_an_objection_to_scoring_fails_the_decision_either_way(ignorable: bool) -> None:
    with (
        serving(answer({"errorMessage": "no\nlicence", "nodeScore": {"node-1": 1}})) as server,
        RemoteExtender(settings(server.url, ignorable)) as extender,
        pytest.raises(HookFailed, match="objects to prioritize: no licence"),
    ):
        asked(extender, Verb.PRIORITIZE)
