"""Nodes ask each other over the control store: everybody answers, and who does not is named."""

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from torch.distributed import PrefixStore, Store, TCPStore

from dlrover_cli.agent.peer_line import PeerLine
from tests.harness.waiting import eventually


@pytest.fixture
def server() -> Iterator[TCPStore]:
    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def line(server: TCPStore, rank: int, size: int, answer: str = "") -> PeerLine:
    client = TCPStore("localhost", server.port, is_master=False)

    def respond(question: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"rank": rank, "heard": question["text"] + answer}

    return PeerLine(PrefixStore("round", client), rank, size, respond)


def test_every_peer_answers_again_and_again(server: TCPStore) -> None:
    lines = [line(server, rank, 3) for rank in range(3)]
    for number in range(5):
        asked = {"text": f"question {number}"}
        answers, silent = lines[number % 3].ask(asked, time.monotonic() + 30)
        others = {0, 1, 2} - {number % 3}
        assert answers == {r: {"rank": r, "heard": asked["text"]} for r in others}
        assert silent == {}
    for each in lines:
        each.close()
    eventually(lambda: not any(each._thread.is_alive() for each in lines))


def test_one_that_does_not_answer_is_named(server: TCPStore) -> None:
    first, second = line(server, 0, 3), line(server, 1, 3)
    eventually(lambda: PrefixStore("round", server).check(["host/1"]))
    second.close()
    answers, silent = first.ask({"text": "x"}, time.monotonic() + 0.3)
    assert (answers, silent) == ({}, {1: socket.gethostname(), 2: ""})
    first.close()


def test_a_question_is_sent_before_anybody_answers(server: TCPStore) -> None:
    first = line(server, 0, 2)
    sent = []
    first.ask({"text": "x"}, time.monotonic() + 0.05, lambda: sent.append(True))
    assert sent == [True]
    first.close()


def test_a_store_without_a_second_client_is_said_to_be_so() -> None:
    class Python(Store):
        """Without `clone`, as all that are written in Python."""

    alone = PeerLine(PrefixStore("round", Python()), 0, 2, dict)
    eventually(lambda: alone.problem)
    assert "has no second client" in alone.problem
    answers, silent = alone.ask({}, time.monotonic() + 0.05)
    assert (answers, silent) == ({}, {1: ""})
    alone.close()
