"""Receivers that fail, reset, drip or are gone: nobody waits for them, and nothing is lost."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.launch.notifying import Notify
from dlrover_cli.services.address import parse_hook
from dlrover_cli.telemetry import notifier as module
from dlrover_cli.telemetry.notices import KINDS
from dlrover_cli.telemetry.notifier import QUEUE_LENGTH, UNDELIVERED, Notifier
from dlrover_cli.telemetry.run_dir import RunDirectory
from tests.harness.waiting import eventually
from tests.services.servers import Behaviour, Request, Server, answer, head, serving
from tests.telemetry.recorded import RUN_ID, Journal

OK = answer("", "204 No Content", keep=True)


class Telling:
    """Notifiers with all that they say; closed after the test."""

    def __init__(self, directory: Path) -> None:
        self.said: list[str] = []
        self.directory = RunDirectory(directory, RUN_ID, "vm.1", self.said.append)
        self.directory.node.mkdir(parents=True)
        self._made: list[Notifier] = []

    def to(self, *urls: str, secret: bytes | None = None) -> Notifier:
        notify = Notify(tuple(map(parse_hook, urls)), KINDS, secret)
        made = notify.begin(self.directory, self.said.append, tells_of_run=True)
        self._made.append(made)
        return made

    @property
    def left(self) -> list[dict[str, Any]]:
        path = self.directory.node / UNDELIVERED
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[Telling]:
    yield Telling(tmp_path)
    eventually(lambda: "notify" not in {each.name for each in threading.enumerate()}, 20)


def sequence(server: Server) -> list[int]:
    """The numbers of the events that came, each once, in the order in which they came first."""
    return list(dict.fromkeys(int(each.json["id"].rpartition("/")[2]) for each in server.requests))


def unreliable(seed: int) -> Behaviour:
    """Half of the time something goes wrong: an error, a reset, an answer that never ends."""
    choice = random.Random(seed)

    def behave(connection: socket.socket, request: Request, server: Server) -> bool | None:
        server.requests.remove(request)  # not taken, until it is
        match choice.choice(["taken", "taken", "taken", "500", "reset", "late"]):
            case "500":
                return answer("oh no", "500 Internal Server Error", keep=True)(
                    connection, request, server
                )
            case "reset":
                connection.shutdown(socket.SHUT_RDWR)
                return False
            case "late":  # taken, but nobody is told
                server.requests.append(request)
                connection.sendall(head("200 OK", {"Content-Length": "5"}) + b"ab")
                return False
        server.requests.append(request)
        return OK(connection, request, server)

    return behave


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
def test_a_receiver_that_fails_half_of_the_time_gets_every_event(
    telling: Telling, seed: int
) -> None:
    journal = Journal()
    with serving(unreliable(seed)) as server:
        notifier = telling.to(f"{server.url}/hook")
        events = journal.life()
        for event in events:
            notifier.put(event)
        notifier.close(is_over=True)
        assert sequence(server) == [event["seq"] for event in events]
    assert telling.left == []


def test_what_came_twice_has_the_same_id(telling: Telling) -> None:
    answers = iter([answer("no", "503 Service Unavailable"), OK])

    def behave(connection: socket.socket, request: Request, server: Server) -> bool | None:
        return next(answers)(connection, request, server)

    with serving(behave) as server:
        notifier = telling.to(server.url, secret=b"key")
        notifier.put(Journal().event(1, "failure"))
        notifier.close(is_over=True)
        first, second = server.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == f"{RUN_ID}/vm.1/1"
    assert first.body == second.body
    assert second.headers["webhook-signature"].startswith("v1,")


def test_nobody_waits_for_a_receiver_that_says_nothing(telling: Telling) -> None:
    def silent(connection: socket.socket, request: Request, server: Server) -> None:
        server.stopping.wait(10)

    with serving(silent) as server, serving(OK) as other:
        notifier = telling.to(server.url, other.url)
        started = time.monotonic()
        for number in range(QUEUE_LENGTH + 10):
            notifier.put(Journal().event(number, "failure"))
        assert time.monotonic() - started < 5
        eventually(lambda: len(other.requests) > 10, what="the other receiver")
        notifier.close(is_over=False)
        server.stopping.set()
    # Both have lost the oldest but the one on its way, for lack of room.
    assert len([each for each in telling.left if each["receiver"] == 0]) == QUEUE_LENGTH


def test_what_is_left_at_the_end_is_kept_and_said_in_one_line(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNREACHED_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    notifier = telling.to(f"http://127.0.0.1:{port}/T0KEN?key=T0KEN")
    journal = Journal()
    notifier.put(journal.event(1, "failure"))
    notifier.put(journal.event(2, "run_finished", outcome="failed", exit_code=1, reason="r"))
    notifier.close(is_over=True)
    assert [each["notice"]["kind"] for each in telling.left] == ["failure", "run_finished"]
    assert telling.said[-1].startswith(
        f"http://127.0.0.1:{port}/… did not get 2 notifications (refused the connection"
    )
    assert "T0KEN" not in "".join(telling.said)
    assert "T0KEN" not in json.dumps(telling.left)


def test_one_that_was_never_reached_is_not_waited_for_as_long_as_one_that_was(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 60.0)
    monkeypatch.setattr(module, "_UNREACHED_SECONDS", 0.3)
    is_well, journal = threading.Event(), Journal()

    def ill(connection: socket.socket, request: Request, server: Server) -> bool | None:
        if not is_well.is_set():
            return answer("oh no", "500 Internal Server Error")(connection, request, server)
        return OK(connection, request, server)

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    gone = telling.to(f"http://127.0.0.1:{port}/")
    gone.put(journal.event(1, "failure"))
    started = time.monotonic()
    gone.close(is_over=True)
    assert time.monotonic() - started < 20
    assert len(telling.left) == 1
    assert "delivering" not in "".join(telling.said)

    with serving(ill) as server:
        there = telling.to(server.url)
        there.put(journal.event(2, "failure"))
        closing = threading.Thread(target=lambda: there.close(is_over=True))
        closing.start()
        eventually(lambda: "for at most 60 s in all" in telling.said[-1], what="the long wait")
        is_well.set()
        closing.join(30)
        assert sequence(server) == [1, 2]
        assert "did not get" not in telling.said[-1]


def test_what_is_refused_is_not_sent_again(telling: Telling) -> None:
    with serving(answer("who are you?", "401 Unauthorized")) as server:
        notifier = telling.to(server.url)
        notifier.put(Journal().event(1, "failure"))
        notifier.close(is_over=True)
        assert len(server.requests) == 1
    assert len(telling.left) == 1
    assert "answered 401 Unauthorized" in telling.said[-1]
    assert "it is not sent again" in telling.said[0]


def test_a_status_of_success_is_enough_whatever_is_said_beside_it(telling: Telling) -> None:
    def behave(connection: socket.socket, request: Request, server: Server) -> None:
        connection.sendall(head("200 OK", {"Content-Length": str(1 << 30)}) + b"a" * 1000)
        server.stopping.wait()

    with serving(behave) as server:
        notifier = telling.to(server.url)
        notifier.put(Journal().event(1, "failure"))
        notifier.close(is_over=True)
        assert len(server.requests) == 1
    assert telling.left == []
    assert telling.said == []


@pytest.mark.parametrize("status", ["404 Not Found", "301 Moved Permanently"])
def test_a_receiver_that_repeats_its_address_does_not_give_it_away(
    telling: Telling, status: str
) -> None:
    path = "/services/T0KEN-1234/T0KEN-5678?key=T0KEN-9"
    location = {"Location": f"https://hooks.example.com{path}"}
    with serving(answer(f"Cannot POST {path}", status, headers=location)) as server:
        notifier = telling.to(server.url + path)
        notifier.put(Journal().event(1, "failure"))
        notifier.close(is_over=True)
    said = "".join(telling.said)
    assert f"answered {status}" in said
    assert "hooks.example.com" in said
    assert "Cannot POST" in said
    assert "T0KEN" not in said + json.dumps(telling.left)


def test_the_next_process_of_the_run_sends_what_was_left(telling: Telling) -> None:
    journal = Journal()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    first = telling.to(f"http://127.0.0.1:{port}/")
    first.put(journal.event(1, "failure"))
    first.close(is_over=False)
    with serving(OK) as server:
        second = telling.to(server.url)
        second.put(journal.event(2, "run_resumed"))
        second.close(is_over=True)
        assert sequence(server) == [1, 2]
    assert telling.left == []
