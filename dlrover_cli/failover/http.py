"""Failover decided by a service: POST what is known of a failure, get a strategy.

    export DLROVER_FAILOVER_SERVICE_URL=https://ops.example.com/decide
    dlrover-run --dynamic_failover_extension=dlrover_cli.failover.http::HttpFailoverExtension …

This is our own contract, and no part of Volcano's. The body is a failure as the run directory
keeps it. The answer is `{"strategy": "NODE_FAILOVER"}`, or null for no opinion; a `reason` beside
it goes to the extension's log. An error of the service is an error of the extension, for which
`--failover_on_error` counts, unless it is ignorable: then the service has no opinion.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from dlrover_cli.config.go_durations import parse_go_duration
from dlrover_cli.contracts.failover import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    FailoverStrategy,
)
from dlrover_cli.errors import UsageError
from dlrover_cli.services.address import ServiceAddress, parse_address
from dlrover_cli.services.bodies import BadBody, parse_json
from dlrover_cli.services.client import ServiceClient, ServiceOptions
from dlrover_cli.services.faults import BadAnswer, ServiceFailed, shown

URL = "DLROVER_FAILOVER_SERVICE_URL"
TIMEOUT = "DLROVER_FAILOVER_SERVICE_TIMEOUT"
IGNORABLE = "DLROVER_FAILOVER_SERVICE_IGNORABLE"
TOKEN_FILE = "DLROVER_FAILOVER_SERVICE_TOKEN_FILE"
CA_FILE = "DLROVER_FAILOVER_SERVICE_CA_FILE"
DEFAULT_TIMEOUT = "5s"


class HttpFailoverExtension(DynamicAgentFailoverExtension):
    """Asks the service that the environment names; better refused now than at the first failure."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ)
        self._ignorable = _flag(environ, IGNORABLE)
        self._client = ServiceClient(
            ServiceOptions(
                self._address,
                _timeout(environ),
                token_file=_file(environ, TOKEN_FILE),
                ca_file=_file(environ, CA_FILE),
            )
        )

    def get_user_failover_strategy(  # type: ignore[override]  # None is no opinion
        self, failure_info: AgentFailureInfo
    ) -> FailoverStrategy | None:
        """The service's answer. Raises ServiceFailed."""
        body = json.dumps(failure_info.to_json()).encode()
        try:
            return self._understood(self._client.post("", body))
        except ServiceFailed as error:
            if not self._ignorable:
                raise
            self._log(f"{error.message}; it is taken for no opinion")
            return None

    def _understood(self, body: bytes) -> FailoverStrategy | None:
        url = str(self._address)
        try:
            answer = parse_json(body)
        except BadBody as error:
            raise BadAnswer(url, str(error)) from None
        if not isinstance(answer, dict) or "strategy" not in answer:
            raise BadAnswer(url, "answered without a 'strategy'")
        name = answer["strategy"]
        if name not in (None, *FailoverStrategy.__members__):
            known = ", ".join(FailoverStrategy.__members__)
            said = shown(json.dumps(name), 60)
            raise BadAnswer(url, f"answered with the strategy {said}, which is none of {known}")
        if isinstance(reason := answer.get("reason"), str):
            self._log(f"{self._address} answers {name}: {shown(reason)}")
        return None if name is None else FailoverStrategy[name]

    def _log(self, line: str) -> None:
        """What an extension prints is in the run's `extension.log`."""
        print(line, flush=True)  # noqa: T201


def _address(environ: Mapping[str, str]) -> ServiceAddress:
    url = environ.get(URL, "")
    hint = f"export {URL}=https://ops.example.com/decide"
    if not url:
        raise UsageError(f"{URL} is not set: which service decides about failures?", hint=hint)
    try:
        address = parse_address(url)
    except ValueError as error:
        raise UsageError(f"{URL}: {error}", hint=hint) from None
    if environ.get(TOKEN_FILE) and not address.is_tls and not address.is_loopback:
        raise UsageError(
            f"{TOKEN_FILE}: the token would go to {address.host} unencrypted",
            hint="Use an https:// address, or leave the token out.",
        )
    return address


def _timeout(environ: Mapping[str, str]) -> float:
    hint = "Write it as Go does, and shorter than --failover_timeout: 500ms, 5s"
    try:
        seconds = parse_go_duration(environ.get(TIMEOUT) or DEFAULT_TIMEOUT)
    except ValueError as error:
        raise UsageError(f"{TIMEOUT}: {error}", hint=hint) from None
    if not 0.001 <= seconds <= 600:
        raise UsageError(f"{TIMEOUT} takes 1ms to 10m, not {environ[TIMEOUT]}", hint=hint)
    return seconds


def _flag(environ: Mapping[str, str], name: str) -> bool:
    flags: Mapping[str, bool] = {"": False, "0": False, "false": False, "1": True, "true": True}
    written = environ.get(name, "").strip().lower()
    if written not in flags:
        raise UsageError(f"{name} is true or false, not {written!r}", hint=f"export {name}=true")
    return flags[written]


def _file(environ: Mapping[str, str], name: str) -> Path | None:
    written = environ.get(name)
    return Path(written).expanduser() if written else None
