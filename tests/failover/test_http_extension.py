"""Failover by a service over HTTP: its answers, its errors, and how it is set up."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.errors import PluginError, UsageError
from dlrover_cli.failover import http
from dlrover_cli.failover.advice import History
from dlrover_cli.failover.extension import ExtensionAdviser
from dlrover_cli.failover.http import HttpFailoverExtension
from dlrover_cli.services.faults import ServiceFailed
from tests.failover.failures import NOTHING_BEFORE, failure
from tests.services.servers import Behaviour, Server, answer, serving

REFERENCE = "dlrover_cli.failover.http::HttpFailoverExtension"
FAILURE = failure(exit_code=3)


def environ(server: Server, **more: str) -> dict[str, str]:
    settings = {"URL": f"{server.url}/decide", "TIMEOUT": "10s", **more}
    return {f"DLROVER_FAILOVER_SERVICE_{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("strategy", FailoverStrategy)
def test_the_service_decides(strategy: FailoverStrategy) -> None:
    with serving(answer({"strategy": strategy.name})) as server:
        extension = HttpFailoverExtension(environ(server))
        assert extension.get_user_failover_strategy(FAILURE) is strategy
        [request] = server.requests
    assert request.path == "/decide"
    assert AgentFailureInfo.from_json(request.json) == FAILURE


def test_null_is_no_opinion() -> None:
    with serving(answer({"strategy": None})) as server:
        extension = HttpFailoverExtension(environ(server))
        assert extension.get_user_failover_strategy(FAILURE) is None


def test_a_reason_goes_to_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"strategy": "NODE_FAILOVER", "reason": "GPU 3\nis broken"}
    with serving(answer(said)) as server:
        HttpFailoverExtension(environ(server)).get_user_failover_strategy(FAILURE)
    assert "answers NODE_FAILOVER: GPU 3 is broken" in capsys.readouterr().out


def silent(connection: object, request: object, server: Server) -> None:
    server.stopping.wait()


BAD: list[tuple[Behaviour, str]] = [
    (silent, "did not answer within 0.3 s"),
    (answer("no", "503 Busy"), "answered 503 Service Unavailable: no"),
    (answer(""), "an empty body"),
    (answer("null"), "without a 'strategy'"),
    (answer("{}"), "without a 'strategy'"),
    (answer({"strategy": "RETRY"}), 'the strategy "RETRY", which is none of NORMAL_FAILOVER'),
    (answer({"strategy": 1}), "the strategy 1, which"),
    (answer({"strategy": [[]]}), "the strategy [[]], which"),
]


def patience(behaviour: Behaviour) -> str:
    return "300ms" if behaviour is silent else "10s"


@pytest.mark.parametrize("behaviour, words", BAD)
def test_an_error_of_the_service_is_one_of_the_extension(behaviour: Behaviour, words: str) -> None:
    with serving(behaviour) as server:
        extension = HttpFailoverExtension(environ(server, TIMEOUT=patience(behaviour)))
        with pytest.raises(ServiceFailed) as caught:
            extension.get_user_failover_strategy(FAILURE)
    assert words in caught.value.message
    assert f"{server.url}/decide" in caught.value.message


@pytest.mark.parametrize("behaviour, words", BAD)
def test_an_error_that_may_be_ignored_is_no_opinion(
    behaviour: Behaviour, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(behaviour) as server:
        settings = environ(server, TIMEOUT=patience(behaviour), IGNORABLE="true")
        extension = HttpFailoverExtension(settings)
        assert extension.get_user_failover_strategy(FAILURE) is None
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"URL": ""}, "URL is not set"),
        ({"URL": "ops:80"}, "neither http"),
        ({"URL": "http://ops", "TOKEN_FILE": "t"}, "unencrypted"),
        ({"TIMEOUT": "5"}, "no unit after 5"),
        ({"TIMEOUT": "0s"}, "1ms to 10m"),
        ({"IGNORABLE": "perhaps"}, "true or false"),
        ({"TOKEN_FILE": "/nowhere/token"}, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_failure(
    settings: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        HttpFailoverExtension(environ(Server("http://127.0.0.1:1", 1), **settings))


def advice(tmp_path: Path) -> Any:
    """As an agent gets it, from the extension's own process."""
    adviser = ExtensionAdviser(REFERENCE, [], timeout=20.0, log_path=tmp_path / "extension.log")
    history: History = NOTHING_BEFORE
    try:
        adviser.start()
        return adviser.advise(FAILURE, history)
    finally:
        adviser.close()


def test_an_agent_asks_it_like_any_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"strategy": "NODE_FAILOVER", "reason": "known to be broken"}
    with serving(answer(json.dumps(said))) as server:
        for name, value in environ(server).items():
            monkeypatch.setenv(name, value)
        verdict = advice(tmp_path)
    assert verdict.strategy is FailoverStrategy.NODE_FAILOVER
    assert "known to be broken" in (tmp_path / "extension.log").read_text()


def test_a_run_without_its_address_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DLROVER_FAILOVER_SERVICE_URL", raising=False)
    with pytest.raises(PluginError, match="DLROVER_FAILOVER_SERVICE_URL is not set"):
        advice(tmp_path)


def test_every_variable_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "failover.md").read_text()
    table = page.partition("`DLROVER_FAILOVER_SERVICE_…`")[2].partition("\n\n")[0]
    told = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    prefix = "DLROVER_FAILOVER_SERVICE_"
    names = (http.URL, http.TIMEOUT, http.IGNORABLE, http.TOKEN_FILE, http.CA_FILE)
    assert told == [name.removeprefix(prefix) for name in names]
    assert f"`{http.DEFAULT_TIMEOUT}` if absent" in table
