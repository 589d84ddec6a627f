"""Who is told of a run's events: from ``--notify`` to receivers, with nothing secret in sight."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dlrover_cli.errors import ConfigError, UsageError
from dlrover_cli.telemetry.run_dir import RunDirectory

if TYPE_CHECKING:
    from dlrover_cli.config.settings import LaunchSettings
    from dlrover_cli.services.address import ServiceAddress
    from dlrover_cli.telemetry.notifier import Notifier

_SECONDS = 5.0
_FILE = "@"
_ALL = "all"


class Wishes(Protocol):
    """What settings and a LaunchConfig have in common here."""

    @property
    def notify(self) -> tuple[str, ...]: ...
    @property
    def notify_on(self) -> str: ...
    @property
    def notify_secret_file(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Notify:
    """Who is told, of what, and signed with which key."""

    addresses: "tuple[ServiceAddress, ...]"
    kinds: frozenset[str]
    secret: bytes | None = field(default=None, repr=False)

    def begin(
        self, directory: RunDirectory, say: Callable[[str], None], *, tells_of_run: bool
    ) -> "Notifier":
        """Start to tell. The caller hands on the events, and closes it."""
        from dlrover_cli.services.client import ServiceClient, ServiceOptions
        from dlrover_cli.telemetry.notifier import Notifier, Receiver

        return Notifier(
            [
                Receiver(
                    str(address),
                    ServiceClient(
                        ServiceOptions(
                            address,
                            _SECONDS,
                            accepts=range(200, 300),
                            wants_body=False,
                            has_breaker=False,
                        )
                    ),
                    self.secret,
                )
                for address in self.addresses
            ],
            self.kinds,
            agent=directory.agent,
            host=socket.gethostname(),
            directory=directory.node,
            say=say,
            tells_of_run=tells_of_run,
        )


def notify_of(wishes: Wishes) -> Notify | None:
    """What was asked for, checked. Raises ConfigError, whose words hold no secret."""
    if not wishes.notify:
        for name in ("notify_on", "notify_secret_file"):
            if getattr(wishes, name):
                raise _wrong(name, "is there, and nobody is to be notified", "add --notify=URL")
        return None
    addresses = tuple(_address(text) for text in wishes.notify)
    return Notify(addresses, _kinds(wishes.notify_on), _secret(wishes.notify_secret_file))


def hide_secrets(settings: "LaunchSettings", text: str) -> str:
    """``text`` without the URLs of receivers: whoever knows one can write to it."""
    for url in settings.notify:
        if not url.startswith(_FILE):
            text = text.replace(url, _shown(url))
    return text


def shown_argv(settings: "LaunchSettings", argv: Sequence[str]) -> list[str]:
    """The command line as it may be written down."""
    return [hide_secrets(settings, word) for word in argv]


def shown_value(settings: "LaunchSettings", name: str) -> Any:
    """The value of a setting as a person may see it."""
    value = getattr(settings, name)
    return tuple(shown_argv(settings, value)) if name == "notify" else value


def _address(text: str) -> "ServiceAddress":
    from dlrover_cli.services.address import parse_hook

    url = _read(text.removeprefix(_FILE)) if text.startswith(_FILE) else text
    try:
        return parse_hook(url)
    except ValueError as error:
        raise _wrong("notify", f": {error}", "--notify=https://ops.example.com/hook") from None


def _shown(url: str) -> str:
    from dlrover_cli.services.address import parse_hook

    try:
        return str(parse_hook(url))
    except ValueError:
        return "(a URL)"


def _read(path: str) -> str:
    from dlrover_cli.services.secrets import read_token

    try:
        return read_token(Path(path).expanduser())
    except UsageError:
        what = f": the file {path} cannot be read, or does not hold one URL alone"
        raise _wrong("notify", what, "--notify=@FILE takes the URL from the file") from None


def _kinds(text: str) -> frozenset[str]:
    from dlrover_cli.telemetry.notices import DEFAULT_KINDS, KINDS

    wanted = {kind.strip() for kind in text.split(",") if kind.strip()}
    if not wanted:
        return DEFAULT_KINDS
    for kind in sorted(wanted - KINDS - {_ALL}):
        near = get_close_matches(kind, KINDS, n=1)
        known = f"they are {', '.join(sorted(KINDS))}; or {_ALL}"
        hint = f"did you mean {near[0]!r}?" if near else known
        raise _wrong("notify_on", f": there is no kind of event {kind!r}", hint)
    return frozenset(KINDS if _ALL in wanted else wanted)


def _secret(path: str) -> bytes | None:
    from dlrover_cli.services.secrets import read_token
    from dlrover_cli.telemetry.notices import secret_from

    if not path:
        return None
    hint = "it holds one line, such as what `openssl rand -hex 32` prints"
    try:
        return secret_from(read_token(Path(path).expanduser()))
    except UsageError:
        what = f": the file {path} cannot be read, or does not hold one secret alone"
        raise _wrong("notify_secret_file", what, hint) from None
    except ValueError as error:
        raise _wrong("notify_secret_file", f": {error}", hint) from None


def _wrong(setting: str, what: str, hint: str) -> ConfigError:
    separator = "" if what.startswith(":") else " "
    return ConfigError(f"--{setting}{separator}{what}", setting=setting, hint=hint)
