"""The client of outside services: one deadline for everything, bounded, and discreet."""

import contextlib
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_cli.errors import UsageError
from dlrover_cli.services.address import parse_address
from dlrover_cli.services.client import ServiceClient, ServiceOptions
from dlrover_cli.services.faults import (
    BadAnswer,
    BadStatus,
    ServiceFailed,
    ServiceNotAsked,
    ServiceSilent,
    ServiceUnreachable,
    shown,
)
from tests.services.servers import PEM, Behaviour, Server, answer, drip, head, reset, serving
from tests.services.stopwatch import Stopwatch

DEADLINE = 0.3
AMPLE = 10.0
"""For what is not about time: a busy machine may take it."""
LATEST = DEADLINE + 0.2
MIB = 1 << 20


@contextmanager
def asking(url: str, timeout: float = AMPLE, **options: object) -> Iterator[ServiceClient]:
    client = ServiceClient(ServiceOptions(parse_address(url), timeout, **options))  # type: ignore[arg-type]
    yield client
    client.close()


def failure(client: ServiceClient, kind: type[ServiceFailed]) -> ServiceFailed:
    with Stopwatch() as watch, pytest.raises(kind) as caught:
        client.post("predicate", b"{}")
    assert watch.seconds < LATEST
    return caught.value


def hang(connection: socket.socket, request: object, server: Server) -> None:
    server.stopping.wait()


def test_a_body_is_posted_as_json_below_the_prefix() -> None:
    with serving(answer({"code": 0})) as server, asking(f"{server.url}/v1/") as client:
        assert client.post("predicate", b'{"task": 1}', {"X-Id": "7"}) == b'{"code": 0}'
        [request] = server.requests
    assert request.path == "/v1/predicate"
    assert request.json == {"task": 1}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["x-id"] == "7"


def test_a_connection_is_used_again() -> None:
    with serving(answer(b"{}", keep=True)) as server, asking(server.url) as client:
        for _ in range(5):
            client.post("x", b"{}")
        assert server.connections == 1


def test_threads_have_connections_of_their_own() -> None:
    together = threading.Barrier(4)

    def behave(connection: socket.socket, request: object, server: Server) -> bool:
        together.wait(5)
        connection.sendall(head(headers={"Content-Length": "2"}) + b"{}")
        return True

    with serving(behave) as server, asking(server.url) as client:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: client.post("x", b"{}"), range(8))) == [b"{}"] * 8
        assert server.connections == 4


def test_a_connection_that_was_closed_meanwhile_is_replaced_unnoticed() -> None:
    with serving(answer(b"{}", keep=False)) as server, asking(server.url) as client:
        for _ in range(3):
            assert client.post("x", b"{}") == b"{}"
        assert server.connections == 3


def test_a_connection_with_more_than_its_answer_is_not_used_again() -> None:
    behaviour = answer(b'{}{"code": 1}', length=2, keep=True)
    with serving(behaviour) as server, asking(server.url) as client:
        assert [client.post("x", b"{}") for _ in range(3)] == [b"{}"] * 3


def test_a_large_body_arrives_whole() -> None:
    body = b'"' + b"x" * (4 * MIB) + b'"'
    with serving(answer(b"{}")) as server, asking(server.url) as client:
        client.post("onSessionOpen", body)
        assert server.requests[0].body == body


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_an_answer_may_have_any_framing(headers: dict[str, str]) -> None:
    def behave(connection: socket.socket, request: object, server: Server) -> None:
        body = b"2\r\n{}\r\n0\r\n\r\n" if headers else b"{}"
        connection.sendall(head(headers=headers) + body)

    with serving(behave) as server, asking(server.url) as client:
        assert client.post("x", b"{}") == b"{}"


def test_a_compressed_answer_is_unpacked() -> None:
    packed = gzip.compress(b'{"code": 0}')
    behaviour = answer(packed, headers={"Content-Encoding": "gzip"})
    with serving(behaviour) as server, asking(server.url) as client:
        assert client.post("x", b"{}") == b'{"code": 0}'
        assert server.requests[0].headers["accept-encoding"] == "gzip"


def test_ten_mebibytes_are_not_too_many() -> None:
    with serving(answer(b" " * (10 * MIB))) as server, asking(server.url, 10) as client:
        assert len(client.post("x", b"{}")) == 10 * MIB


# ---- deadlines -------------------------------------------------------------------------------


def drip_headers(connection: socket.socket, request: object, server: Server) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    drip(connection, server, b"zzzzzzz")


def drip_continue(connection: socket.socket, request: object, server: Server) -> None:
    while not server.stopping.wait(0.01):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def drip_body(connection: socket.socket, request: object, server: Server) -> None:
    connection.sendall(head(headers={"Content-Length": "100000"}))
    drip(connection, server, b" ")


def drip_chunks(connection: socket.socket, request: object, server: Server) -> None:
    connection.sendall(head(headers={"Transfer-Encoding": "chunked"}))
    drip(connection, server, b"1\r\n \r\n")


@pytest.mark.parametrize("behaviour", [hang, drip_headers, drip_continue, drip_body, drip_chunks])
def test_no_server_outlives_the_deadline(behaviour: Behaviour) -> None:
    with serving(behaviour) as server, asking(server.url, DEADLINE) as client:
        error = failure(client, ServiceSilent)
    assert error.message == f"{server.url}/predicate did not answer within 0.3 s"


def test_a_server_that_reads_nothing_does_not_outlive_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with asking(f"http://127.0.0.1:{port}", DEADLINE) as client:
            body = b" " * (64 * MIB)
            with Stopwatch() as watch, pytest.raises(ServiceSilent):
                client.post("x", body)
            assert watch.seconds < LATEST


def test_slow_names_do_not_outlive_the_deadline_and_are_looked_up_once() -> None:
    asked, go_on = [], threading.Event()

    def resolve(host: str, port: int) -> list[object]:
        asked.append(host)
        go_on.wait(10)
        return []

    with asking("http://slow.invalid", DEADLINE, resolve=resolve) as client:
        failure(client, ServiceSilent)
    with (
        asking("http://slow.invalid", DEADLINE, resolve=resolve) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        errors = list(pool.map(lambda _: failure(client, ServiceSilent), range(4)))
    go_on.set()
    assert len(errors) == 4
    assert asked == ["slow.invalid"] * 2


def test_a_name_that_nobody_knows_is_called_so() -> None:
    def resolve(host: str, port: int) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with asking("http://nowhere.invalid", resolve=resolve) as client:
        error = failure(client, ServiceUnreachable)
    assert "a name that cannot be resolved: Name or service not known" in error.message


def test_slow_tls_does_not_outlive_the_deadline() -> None:
    with (
        serving(hang, tls=True, handshake=False) as server,
        asking(server.url, DEADLINE, ca_file=PEM) as client,
    ):
        failure(client, ServiceSilent)


@pytest.mark.full
@pytest.mark.parametrize("behaviour", [drip_headers, drip_body, drip_chunks])
def test_dripping_within_tls_does_not_outlive_the_deadline(behaviour: Behaviour) -> None:
    with (
        serving(behaviour, tls=True) as server,
        asking(server.url, DEADLINE, ca_file=PEM) as client,
    ):
        failure(client, ServiceSilent)


@pytest.mark.full
def test_a_dripping_handshake_does_not_outlive_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server("", listener.getsockname()[1])

        def serve() -> None:
            connection, _ = listener.accept()
            # The beginning of a record of 16 KiB, which never ends.
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")
                drip(connection, server, b"\x00")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with asking(f"https://127.0.0.1:{server.port}", DEADLINE, ca_file=PEM) as client:
            failure(client, ServiceSilent)
        server.stopping.set()
        thread.join(5)


@pytest.mark.full
def test_a_server_that_reads_nothing_within_tls_does_not_outlive_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(PEM)
        over = threading.Event()

        def serve() -> None:
            with context.wrap_socket(listener.accept()[0], server_side=True):
                over.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        body = b" " * (64 * MIB)
        with asking(url, DEADLINE, ca_file=PEM) as client:
            with Stopwatch() as watch, pytest.raises(ServiceSilent):
                client.post("x", body)
            assert watch.seconds < LATEST
        over.set()
        thread.join(5)


@contextlib.contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """Where no connection comes about: as many wait to be taken as may."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


@contextlib.contextmanager
def refusing_address() -> Iterator[tuple[str, int]]:
    yield ("127.0.0.1", 1)


@pytest.mark.parametrize("first", [silent_address, refusing_address])
def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    first: Callable[[], contextlib.AbstractContextManager[tuple[str, int]]],
) -> None:
    with first() as address, serving(answer(b"{}")) as server:

        def resolve(host: str, port: int) -> list[object]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, address), (*kind, ("127.0.0.1", server.port))]

        with asking(f"http://two.invalid:{server.port}", 4.0, resolve=resolve) as client:
            assert client.post("x", b"{}") == b"{}"


# ---- trust -----------------------------------------------------------------------------------


def test_tls_is_verified_with_the_given_authority() -> None:
    with serving(answer(b"{}"), tls=True) as server, asking(server.url, ca_file=PEM) as client:
        assert client.post("x", b"{}") == b"{}"


def test_a_connection_with_tls_is_used_again() -> None:
    behaviour = answer(b"{}", keep=True)
    with serving(behaviour, tls=True) as server, asking(server.url, ca_file=PEM) as client:
        for _ in range(3):
            client.post("x", b"{}")
        assert server.connections == 1


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    with serving(answer(b"{}"), tls=True) as server, asking(server.url) as client:
        with pytest.raises(ServiceUnreachable, match="certificate that is not trusted"):
            client.post("x", b"{}")
        assert server.requests == []


def test_a_certificate_of_another_host_is_refused() -> None:
    with serving(answer(b"{}"), tls=True) as server:

        def resolve(host: str, port: int) -> list[object]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]

        url = f"https://other.invalid:{server.port}"
        with (
            asking(url, ca_file=PEM, resolve=resolve) as client,
            pytest.raises(ServiceUnreachable, match="not trusted"),
        ):
            client.post("x", b"{}")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_is_refused_at_once(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="CA file"), asking("https://x", ca_file=path):
        pass


def test_a_token_is_sent_and_read_anew(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(answer(b"{}")) as server, asking(server.url, token_file=token) as client:
        client.post("x", b"{}")
        token.write_text("second")
        client.post("x", b"{}")
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "x" * 70_000, "\x00", "é"])
def test_what_is_no_token_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(UsageError) as caught, asking("http://127.0.0.1:1", token_file=path):
        pass
    assert not content or content not in f"{caught.value.message}{caught.value.hint}"


def test_a_token_is_in_no_text(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hunter2")
    with serving(answer("no", "500 Oh")) as server, asking(server.url, token_file=token) as client:
        error = failure(client, BadStatus)
        texts = [repr(client), repr(error), str(error), error.message, repr(vars(client))]
    assert not any("hunter2" in text for text in texts)
    cause: BaseException | None = error
    while cause is not None:
        assert "hunter2" not in repr(cause)
        cause = cause.__cause__ or cause.__context__


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(answer(b"{}")) as server, asking(server.url) as client:
        assert client.post("x", b"{}") == b"{}"


# ---- what it says ----------------------------------------------------------------------------


def test_another_status_is_an_error_with_what_the_service_says() -> None:
    behaviour = answer("out of\n \x1b[31mlicences", "503 Busy")
    with serving(behaviour) as server, asking(server.url) as client:
        error = failure(client, BadStatus)
    assert error.what == "answered 503 Service Unavailable: out of [31mlicences"


def test_a_long_error_is_cut() -> None:
    with serving(answer("x" * MIB, "500 Oh")) as server, asking(server.url) as client:
        error = failure(client, BadStatus)
    assert 300 < len(error.message) < 500
    assert error.message.endswith("…")


def test_a_compressed_error_is_readable() -> None:
    behaviour = answer(
        gzip.compress(b"no such verb" * 9000), "404 No", headers={"Content-Encoding": "gzip"}
    )
    with serving(behaviour) as server, asking(server.url) as client:
        assert "404 Not Found: no such verbno such verb" in failure(client, BadStatus).message


def test_what_a_server_says_before_it_hangs_up_on_a_large_body_is_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(head("413 Too Large", {"Content-Length": "4"}) + b"huge")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        with (
            asking(f"http://127.0.0.1:{listener.getsockname()[1]}") as client,
            pytest.raises(BadStatus, match=": huge"),
        ):
            client.post("onSessionOpen", b" " * (32 * MIB))
        server.join(5)


def test_a_redirect_is_not_followed() -> None:
    with serving(answer(b"{}")) as other:
        to = {"Location": f"{other.url}/elsewhere"}
        with serving(answer(b"", "302 Found", headers=to)) as server, asking(server.url) as client:
            error = failure(client, BadStatus)
        assert other.requests == []
    assert f"points to {other.url}/elsewhere; redirects are not followed" in error.message


def test_a_reset_is_called_so() -> None:
    def behave(connection: socket.socket, request: object, server: Server) -> None:
        reset(connection)

    with serving(behave) as server, asking(server.url) as client:
        assert "broke the connection off" in failure(client, ServiceUnreachable).message


@pytest.mark.parametrize(
    "text, longest, line",
    [("a\nb", 5, "a b"), ("abcdef", 3, "abc…"), ("\ud800x", 5, "x"), (" " * 99, 5, "…")],
)
def test_what_is_shown_is_one_short_line(text: str, longest: int, line: str) -> None:
    assert shown(text, longest) == line


@pytest.mark.full
def test_whatever_bytes_come_the_client_fails_in_its_own_way() -> None:
    sent = [b""]

    def behave(connection: socket.socket, request: object, server: Server) -> None:
        connection.sendall(sent[0])

    with serving(behave) as server, asking(server.url) as client:

        @settings(max_examples=150, deadline=None, database=None)
        @given(st.one_of(st.binary(max_size=200), _ANSWERS))
        def ask(data: bytes) -> None:
            sent[0] = data
            with contextlib.suppress(ServiceFailed):
                client.post("x", b"{}")

        ask()


_ANSWERS = st.builds(
    lambda status, headers, body: b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n\r\n" + body,
    st.sampled_from([b"200 OK", b"200", b"999 x", b"-1", b"100 Continue", b"204 None"]),
    st.lists(
        st.sampled_from(
            [
                b"Content-Length: 5",
                b"Content-Length: -1",
                b"Content-Length: 1e3",
                b"Transfer-Encoding: chunked",
                b"Content-Encoding: gzip",
                b"Connection: close",
                b": ",
                b"\xff: \x00",
            ]
        ),
        max_size=4,
    ).map(b"\r\n".join),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"5\r\nhello\r\n0\r\n\r\n", b"fffff\r\n"])),
)


# ---- the breaker -----------------------------------------------------------------------------


class FakeClock:
    """Real seconds, and those that a test adds."""

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


def test_a_dead_service_costs_one_deadline_and_not_one_per_question() -> None:
    with serving(hang) as server, asking(server.url, DEADLINE) as client:
        with Stopwatch() as watch:
            failure(client, ServiceSilent)
            for _ in range(50):
                error = failure(client, ServiceNotAsked)
        assert watch.seconds < LATEST
        assert server.connections == 1
    assert "was not asked: it failed 0." in error.message


def test_a_service_that_drips_its_errors_costs_one_deadline_too() -> None:
    def behave(connection: socket.socket, request: object, server: Server) -> None:
        connection.sendall(head("500 Oh", {"Content-Length": "100000"}))
        drip(connection, server, b"x")

    with serving(behave) as server, asking(server.url, DEADLINE) as client:
        failure(client, ServiceSilent)
        failure(client, ServiceNotAsked)


def test_a_service_that_came_back_is_asked_again_by_one_first() -> None:
    clock, is_well = FakeClock(), threading.Event()

    def behave(connection: socket.socket, request: object, server: Server) -> None:
        if not is_well.is_set():
            server.stopping.wait()
        connection.sendall(head(headers={"Content-Length": "2"}) + b"{}")

    with serving(behave) as server, asking(server.url, DEADLINE, clock=clock) as client:
        failure(client, ServiceSilent)
        clock.added = 60
        failure(client, ServiceSilent)  # it was tried,
        failure(client, ServiceNotAsked)  # and is left alone again
        is_well.set()
        clock.added = 120
        assert client.post("x", b"{}") == b"{}"
        assert client.post("x", b"{}") == b"{}"


def test_one_reset_does_not_keep_others_from_asking() -> None:
    calls = []

    def behave(connection: socket.socket, request: object, server: Server) -> None:
        calls.append(1)
        if len(calls) == 1:
            reset(connection)
        else:
            connection.sendall(head(headers={"Content-Length": "2"}) + b"{}")

    with serving(behave) as server, asking(server.url) as client:
        failure(client, ServiceUnreachable)
        assert client.post("x", b"{}") == b"{}"


def test_a_service_that_answers_nonsense_is_asked_on() -> None:
    with serving(answer("", "500 Oh")) as server, asking(server.url) as client:
        for _ in range(5):
            failure(client, BadStatus)


def test_an_answer_that_is_too_large_is_refused_before_it_is_read() -> None:
    def behave(connection: socket.socket, request: object, server: Server) -> None:
        connection.sendall(head(headers={"Content-Length": str(10 * MIB + 1)}))
        server.stopping.wait()

    with serving(behave) as server, asking(server.url) as client:
        with Stopwatch() as watch, pytest.raises(BadAnswer, match="more than 10 MiB"):
            client.post("x", b"{}")
        assert watch.seconds < 1
