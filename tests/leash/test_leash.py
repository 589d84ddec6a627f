"""Leashes over real sockets, with leases short enough to wait for."""

import json
import queue
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from dlrover_cli.leash import wire
from dlrover_cli.leash.client import Fenced, Leash, PeerLost, Unleashed
from dlrover_cli.leash.server import Arrived, Departed, LeashServer, Said
from dlrover_cli.leash.wire import LeashAddress, Lines, line_of, take_leash_address
from tests.harness.waiting import eventually

T = TypeVar("T")
LEASE = 2.0
PATIENCE = 20.0


class Posts(queue.SimpleQueue[object]):
    """What one end has posted, in order."""

    def wait_for(self, kind: type[T]) -> T:
        """The next of this kind; what comes before it is dropped."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self.get(timeout=max(0.0, end - time.monotonic()))
            if isinstance(found, kind):
                return found


@pytest.fixture
def posts() -> Posts:
    return Posts()


@pytest.fixture
def server(posts: Posts) -> Iterator[LeashServer]:
    server = LeashServer("127.0.0.1", posts.put, lease=LEASE)
    yield server
    server.close()


Hold = Callable[..., tuple[Leash, Posts]]


@pytest.fixture
def hold(server: LeashServer) -> Iterator[Hold]:
    """`hold("a") -> (leash, what it posts)`; closed after the test."""
    leashes: list[Leash] = []

    def hold(agent: str, address: LeashAddress | None = None) -> tuple[Leash, Posts]:
        leash, heard = Leash(address or server.address_for(agent, f"node-of-{agent}")), Posts()
        leash.start(heard.put, f"member-{agent}")
        leashes.append(leash)
        return leash, heard

    yield hold
    for leash in leashes:
        leash.close()


def connected(server: LeashServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE)


def cut(server: LeashServer, agent: str) -> None:
    """Break the connection of an agent, as a network does."""
    server._by_agent[agent].sock.shutdown(socket.SHUT_RDWR)


class TestTalking:
    def test_an_agent_says_who_it_is_and_its_words_arrive_in_order(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        leash, _ = hold("a")
        arrived = posts.wait_for(Arrived)
        assert arrived.agent == "a"
        assert arrived.facts["member"] == "member-a"
        assert arrived.facts["node"] == "node-of-a"
        assert arrived.facts["host"] == socket.gethostname()
        assert "token" not in arrived.facts
        for number in range(50):
            leash.tell("round", attempt=number)
        said = [posts.wait_for(Said).message["attempt"] for _ in range(50)]
        assert said == list(range(50))

    def test_what_is_said_before_there_is_a_connection_is_told_then(
        self, server: LeashServer, posts: Posts
    ) -> None:
        leash = Leash(server.address_for("a", ""))
        leash.tell("round", attempt=3)
        leash.start(lambda observation: None, "m")
        assert posts.wait_for(Said).message["attempt"] == 3
        leash.close()

    def test_a_broadcast_reaches_everybody_but_one(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        ends = {agent: hold(agent)[1] for agent in ("a", "b", "c")}
        for _ in ends:
            posts.wait_for(Arrived)
        server.broadcast("lost", but="b", agent="b", host="host-b", member="member-b")
        for agent in ("a", "c"):
            assert ends[agent].wait_for(PeerLost) == PeerLost("host-b", "member-b")
        server.send("b", "fence", reason="the last word")
        assert ends["b"].get(timeout=PATIENCE) == Fenced("the last word")  # and nothing before

    def test_an_agent_that_asks_for_its_place_waits_for_the_word(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        leash, heard = hold("a")
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(leash.ask_for_place, {"generation": 2})
            assert posts.wait_for(Said).message == {"kind": "restarting", "generation": 2}
            server.send("a", "go", generation=1)
            server.send("a", "fence", reason="it has heard all before this")
            heard.wait_for(Fenced)
            assert not asking.done(), "that was the word of an earlier time"
            server.send("a", "go", generation=2)
            asking.result(PATIENCE)

    def test_a_question_is_asked_again_over_a_new_connection(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        """Its answer may have been lost with the old one."""
        leash, _ = hold("a")
        posts.wait_for(Arrived)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(leash.ask_for_place, {"generation": 1})
            posts.wait_for(Said)
            cut(server, "a")
            assert posts.wait_for(Arrived).facts["restarting"] == {"generation": 1}
            eventually(lambda: server.send("a", "go", generation=1), PATIENCE)
            asking.result(PATIENCE)
            cut(server, "a")
            assert "restarting" not in posts.wait_for(Arrived).facts

    def test_an_agent_that_is_closed_waits_no_longer(self, hold: Hold) -> None:
        leash, _ = hold("a")
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(leash.ask_for_place, {"generation": 1})
            leash.close()
            asking.result(PATIENCE)

    def test_a_fence_reaches_the_agent_with_its_reason(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        _, heard = hold("a")
        posts.wait_for(Arrived)
        assert server.send("a", "fence", reason="the engine lost it")
        assert heard.wait_for(Fenced) == Fenced("the engine lost it")

    def test_nobody_is_reached_who_is_not_there(self, server: LeashServer) -> None:
        assert not server.send("nobody", "fence", reason="")

    def test_words_of_a_newer_manager_are_passed_over(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        _, heard = hold("a")
        posts.wait_for(Arrived)
        server.send("a", "dance", to="music")
        server.send("a", "lost", nothing="of what we know")
        server.send("a", "fence", reason="r")
        assert heard.get(timeout=PATIENCE) == Fenced("r")


class TestStrangers:
    @pytest.mark.parametrize(
        "line",
        [
            line_of("hello", {"token": "wrong", "agent": "a"}),
            line_of("hello", {"token": "fälsch", "agent": "a"}),
            line_of("hello", {"token": 7, "agent": "a"}),
            line_of("hello", {"agent": "a"}),
            line_of("round", {"attempt": 0}),
            b"GET / HTTP/1.1\r\n\r\n",
            b'"hello"\n',
            b"[" * 200_000 + b"\n",
            b"\xff\xfe\n",
            b"null\n",
        ],
        ids=lambda line: repr(line[:24]),
    )
    def test_whoever_does_not_know_the_secret_is_shown_out(
        self, server: LeashServer, posts: Posts, hold: Hold, line: bytes
    ) -> None:
        with connected(server) as stranger:
            stranger.sendall(line)
            with suppress(ConnectionResetError):  # it left some of the line unread
                assert stranger.recv(1) == b""
        hold("b")  # all goes on for others
        assert posts.get(timeout=PATIENCE) == posts_of("b", posts)

    @pytest.mark.full
    def test_one_who_says_nothing_is_shown_out_after_a_lease(self, server: LeashServer) -> None:
        with connected(server) as stranger:
            began = time.monotonic()
            assert stranger.recv(1) == b""
            assert time.monotonic() - began >= LEASE * 0.9

    def test_garbage_after_the_hello_ends_the_connection(
        self, server: LeashServer, posts: Posts
    ) -> None:
        address = server.address_for("a", "")
        with connected(server) as agent:
            agent.sendall(line_of("hello", {"token": address.token, "agent": "a"}))
            posts.wait_for(Arrived)
            agent.sendall(b"what?\n")
            assert posts.wait_for(Departed) == Departed("a", was_silent=False)

    @pytest.mark.full
    def test_an_agent_with_the_wrong_secret_gives_up_after_a_lease(
        self, server: LeashServer, hold: Hold
    ) -> None:
        began = time.monotonic()
        _, heard = hold("a", replace(server.address_for("a", ""), token="wrong"))
        heard.wait_for(Unleashed)
        assert time.monotonic() - began >= LEASE


def posts_of(agent: str, posts: Posts) -> object:
    """Equal to the arrival of this agent."""

    class Match:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Arrived) and other.agent == agent

        def __hash__(self) -> int:
            return 0

    return Match()


class TestSilence:
    @pytest.mark.full
    def test_both_live_on_without_a_word_for_longer_than_a_lease(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        leash, heard = hold("a")
        posts.wait_for(Arrived)
        time.sleep(LEASE * 1.6)  # the time itself is what is tried
        leash.tell("round", attempt=1)
        assert posts.get(timeout=PATIENCE) == Said("a", {"kind": "round", "attempt": 1})
        assert heard.empty()

    @pytest.mark.full
    def test_an_agent_that_falls_silent_departs_after_a_lease(
        self, server: LeashServer, posts: Posts
    ) -> None:
        address = server.address_for("a", "")
        with connected(server) as agent:
            began = time.monotonic()
            agent.sendall(line_of("hello", {"token": address.token, "agent": "a"}))
            assert posts.wait_for(Departed) == Departed("a", was_silent=True)
            assert time.monotonic() - began >= LEASE

    def test_an_agent_whose_manager_falls_silent_lets_go_after_a_lease(self, hold: Hold) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = LeashAddress("127.0.0.1", silent.getsockname()[1], "t", "a", lease=LEASE)
            began = time.monotonic()
            _, heard = hold("a", address)
            heard.wait_for(Unleashed)
            assert time.monotonic() - began >= LEASE

    def test_one_that_was_asleep_does_not_take_old_words_for_new_ones(
        self, hold: Hold, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as manager:
            address = LeashAddress("127.0.0.1", manager.getsockname()[1], "t", "a", lease=60.0)
            leash, heard = hold("a", address)
            connection, _ = manager.accept()
            with connection:
                Lines().feed(connection.recv(65536))
                leash._heard -= 61.0  # as if the machine had been paused in between
                connection.sendall(line_of("lost", {"host": "h", "member": "m"}))
                assert isinstance(heard.get(timeout=PATIENCE), Unleashed)


class TestCutConnections:
    def test_an_agent_that_closes_its_leash_departs_at_once(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        leash, _ = hold("a")
        posts.wait_for(Arrived)
        leash.tell("ending", action=None, reason="")
        leash.close()
        assert posts.get(timeout=PATIENCE) == Said(
            "a", {"kind": "ending", "action": None, "reason": ""}
        )
        assert posts.get(timeout=PATIENCE) == Departed("a", was_silent=False)

    def test_an_agent_comes_back_within_its_lease(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        leash, heard = hold("a")
        posts.wait_for(Arrived)
        eventually(lambda: leash._connection).shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        assert posts.wait_for(Arrived).agent == "a"
        server.send("a", "fence", reason="over the new one")
        assert heard.wait_for(Fenced) == Fenced("over the new one")
        assert heard.empty()

    def test_the_second_connection_of_an_agent_takes_over(
        self, server: LeashServer, posts: Posts
    ) -> None:
        hello = line_of("hello", {"token": server.address_for("a", "").token, "agent": "a"})
        with connected(server) as first, connected(server) as second:
            first.sendall(hello)
            posts.wait_for(Arrived)
            second.sendall(hello)
            posts.wait_for(Arrived)
            received = b"".join(iter(lambda: first.recv(4096), b""))  # to its end
            assert b"fence" not in received
            server.send("a", "fence", reason="r")
            assert eventually(lambda: b"fence" in second.recv(4096))
            assert posts.empty()  # the agent never was away

    def test_a_manager_that_is_gone_is_noticed_and_given_a_lease(
        self, server: LeashServer, posts: Posts, hold: Hold
    ) -> None:
        _, heard = hold("a")
        posts.wait_for(Arrived)
        server.close()
        began = time.monotonic()
        heard.wait_for(Unleashed)
        assert time.monotonic() - began <= LEASE * 3

    def test_closing_twice_is_closing_once(self, server: LeashServer, hold: Hold) -> None:
        leash, _ = hold("a")
        for _ in range(2):
            leash.close()
            server.close()


class TestWire:
    def test_messages_are_whole_however_they_arrive(self) -> None:
        text = line_of("beat", {}) + line_of("fence", {"reason": "a\nb"})
        lines = Lines()
        messages = [message for at in range(len(text)) for message in lines.feed(text[at : at + 1])]
        assert messages == [{"kind": "beat"}, {"kind": "fence", "reason": "a\nb"}]

    def test_a_line_without_an_end_is_refused(self) -> None:
        lines = Lines()
        with pytest.raises(ValueError, match="no end"):
            lines.feed(b"x" * (wire.LONGEST_LINE + 1))

    def test_the_address_is_taken_out_of_the_environment(self) -> None:
        address = LeashAddress("h", 1, "t", "a", "n", 2.5)
        environ = {wire.VARIABLE: address.to_json(), "OTHER": "stays"}
        assert take_leash_address(environ) == address
        assert environ == {"OTHER": "stays"}
        assert take_leash_address(environ) is None
        assert json.loads(address.to_json())["lease"] == 2.5
