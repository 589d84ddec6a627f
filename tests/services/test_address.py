"""URLs of services: what can be asked, and no secret that could be shown."""

import pytest

from dlrover_cli.services.address import is_path, parse_address


@pytest.mark.parametrize(
    "url, shown, host, port",
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1", 8080),
        ("http://gpu-scheduler:8080/", "http://gpu-scheduler:8080", "gpu-scheduler", 8080),
        ("https://ext/a/b/", "https://ext/a/b", "ext", 443),
        ("http://[::1]:81", "http://[::1]:81", "::1", 81),
        ("HTTP://Host", "http://host", "host", 80),
    ],
)
def test_a_url_is_taken_apart(url: str, shown: str, host: str, port: int) -> None:
    address = parse_address(url)
    assert (str(address), address.host, address.port) == (shown, host, port)


@pytest.mark.parametrize(
    "url, why",
    [
        ("", "empty"),
        ("127.0.0.1:8080", "neither http"),
        ("ftp://x", "neither http"),
        ("http://", "names no host"),
        ("http://x:0", "port 0"),
        ("http://x:99999", "cannot be read"),
        ("http://x:y", "cannot be read"),
        ("http://x/?a=1", "has a ?"),
        ("http://x/#a", "has a ?"),
        ("http://x/\r\nHost: y", "spaces"),
        ("http://[::1", "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match="the URL") as caught:
        parse_address(url)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@x", "http://u:hunter2@x:bad", "http://u:hunter2@["]
)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="the URL") as caught:
        parse_address(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_is_known(host: str) -> None:
    assert parse_address(f"http://{host}:1").is_loopback


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "gpu"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not parse_address(f"http://{host}:1").is_loopback


@pytest.mark.parametrize(
    "text, fits",
    [("predicate", True), ("v1/pred", True), ("/x", False), ("a b", False), ("a?b", False)],
)
def test_a_path_is_what_can_follow_a_slash(text: str, fits: bool) -> None:
    assert is_path(text) is fits
