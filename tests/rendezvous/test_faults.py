"""What went wrong in a rendezvous, as one sentence and one hint."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from torch.distributed import DistNetworkError, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousTimeoutError,
)

from dlrover_cli.errors import RendezvousFailed
from dlrover_cli.rendezvous.connecting import connect
from dlrover_cli.rendezvous.faults import (
    accepts_connections,
    explain,
    holder_of_port,
    hosts_port,
    wait_until_resolvable,
)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which this process listens and never answers."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


class TestSentences:
    @pytest.mark.parametrize(
        "error,backend,words,hint",
        [
            (RendezvousTimeoutError(), "c10d", "did not come together", "join_timeout=SECONDS"),
            (TimeoutError(), "static", "did not come together", "--rdzv-conf timeout=SECONDS"),
            (TimeoutError(), "mine", "(backend mine, endpoint host:1)", "--rdzv-id"),
            (RendezvousClosedError(), "c10d", "has ended", "new --rdzv-id"),
            (
                caused(RendezvousConnectionError("has failed"), RuntimeError("Broken pipe\nmore")),
                "c10d",
                "(backend c10d, endpoint host:1): Broken pipe",
                "is up",
            ),
            (
                DistNetworkError(
                    "The client socket has timed out after 3ms while trying to connect"
                ),
                "static",
                "nobody answers at the rendezvous endpoint host:1",
                "is up",
            ),
            (KeyError("x"), "mine", "the rendezvous (mine) raised KeyError: 'x'", "documentation"),
        ],
    )
    def test_each_kind_has_its_own(
        self, error: Exception, backend: str, words: str, hint: str
    ) -> None:
        failed = explain(error, backend, "host:1")
        assert words in failed.message
        assert "\n" not in failed.message
        assert hint in (failed.hint or "")

    def test_a_handler_without_an_endpoint_is_not_given_one(self) -> None:
        assert explain(TimeoutError(), "mine", "mine").message.endswith("(backend mine)")

    def test_a_sentence_of_ours_stays(self) -> None:
        ours = RendezvousFailed("as it is")
        assert explain(ours, "c10d", "x") is ours

    def test_a_real_store_on_a_taken_port(self, listening: int) -> None:
        with pytest.raises(RuntimeError) as caught:
            TCPStore("localhost", listening, is_master=True)
        message = explain(caught.value, "static", f"localhost:{listening}").message
        assert message.startswith(f"port {listening} is in use by ")
        assert f"(pid {os.getpid()})" in message


class TestPorts:
    def test_a_holder_is_found(self, listening: int) -> None:
        assert f"(pid {os.getpid()})" in (holder_of_port(listening) or "")
        assert hosts_port(listening)
        assert accepts_connections("localhost", listening)

    def test_nobody_is_not(self, listening: int) -> None:
        with socket.socket() as bound:
            bound.bind(("", 0))  # taken and not listened on
            port = bound.getsockname()[1]
            assert holder_of_port(port) is None
            assert not hosts_port(port)
            assert not accepts_connections("localhost", port)


class TestNames:
    def test_a_name_that_appears_late_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = iter([socket.gaierror(-2, "Name or service not known"), None])

        def resolve(host: str, port: None) -> None:
            answer = next(answers)
            if answer is not None:
                raise answer

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        said: list[str] = []
        wait_until_resolvable("late", 30, said.append)
        assert len(said) == 1
        assert "'late' does not resolve yet" in said[0]

    @pytest.mark.parametrize("host", ["x" * 70, "a..b"])
    def test_a_name_that_cannot_be_one_is_not(self, host: str) -> None:
        with pytest.raises(RendezvousFailed, match="not a valid host name"):
            wait_until_resolvable(host, 30, print)


class TestConnecting:
    def test_what_is_made_or_raised_comes_back(self) -> None:
        assert connect(lambda: "a store", "localhost", 1, 30) == "a store"
        with pytest.raises(KeyError):
            connect(lambda: {}["x"], "localhost", 1, 30)

    def test_a_listener_that_is_no_store_ends_the_wait(self, listening: int) -> None:
        never = threading.Event()
        try:
            with pytest.raises(RendezvousFailed) as caught:
                connect(never.wait, "localhost", listening, 0.05)
        finally:
            never.set()
        assert f"port {listening} is in use by" in caught.value.message
        assert "does not answer as a rendezvous store" in caught.value.message
