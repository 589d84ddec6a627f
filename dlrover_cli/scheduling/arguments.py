"""The `extender.*` arguments of one extender, under Volcano's names, as settings.

Volcano takes what it does not understand for the default. Here it is refused: a misspelt verb
would otherwise be a hook that is silently never called.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dlrover_cli.config.go_durations import parse_go_duration
from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.settings import DEFAULT_TIMEOUT, ExtenderSettings
from dlrover_cli.services.address import ServiceAddress, is_path, parse_address

PREFIX = "extender."
URL, TIMEOUT = f"{PREFIX}urlPrefix", f"{PREFIX}httpTimeout"
IGNORABLE, MANAGED = f"{PREFIX}ignorable", f"{PREFIX}managedResources"
TOKEN_FILE, CA_FILE = f"{PREFIX}tokenFile", f"{PREFIX}caFile"
KNOWN = (URL, TIMEOUT, *(verb.setting for verb in Verb), IGNORABLE, MANAGED, TOKEN_FILE, CA_FILE)
LONGEST_TIMEOUT = 600.0

Wrong = Callable[[str, str, str], UsageError]
"""Makes the complaint about a key: what is wrong, and a hint."""


def make_settings(arguments: Mapping[str, Any], base: Path, wrong: Wrong) -> ExtenderSettings:
    """Settings from arguments; paths in them are meant from ``base``. Raises what `wrong` makes."""
    for key in arguments:
        if key not in KNOWN:
            raise wrong(key, f"{key!r} is not an argument of an extender", suggestion(key, KNOWN))
    reader = _Reader(arguments, base, wrong)
    address = reader.address()
    settings = ExtenderSettings(
        address=address,
        verbs=reader.verbs(),
        http_timeout=reader.timeout(),
        ignorable=reader.ignorable(),
        managed_resources=reader.managed_resources(),
        token_file=reader.file(TOKEN_FILE),
        ca_file=reader.file(CA_FILE),
    )
    if settings.token_file and not address.is_tls and not address.is_loopback:
        what = f"the token would go to {address.host} unencrypted"
        raise wrong(TOKEN_FILE, what, "Use an https:// address, or leave the token out.")
    return settings


def suggestion(written: str, known: tuple[str, ...]) -> str:
    """What might have been meant."""
    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(written.casefold(), by_folded, n=1)
    if near:
        return f"Did you mean {by_folded[near[0]]}?"
    return f"Known are {', '.join(known)}."


class _Reader:
    """Reads one value after the other."""

    def __init__(self, arguments: Mapping[str, Any], base: Path, wrong: Wrong) -> None:
        self._arguments = arguments
        self._base = base
        self._wrong = wrong

    def address(self) -> ServiceAddress:
        url = self._text(URL, "http://127.0.0.1:8080")
        if not url:
            hint = f"Write it like this: {URL}: http://127.0.0.1:8080"
            raise self._wrong(URL, f"{URL} is missing: where is the service?", hint)
        try:
            return parse_address(url)
        except ValueError as error:
            hint = "Write it like this: http://127.0.0.1:8080"
            if "password" in str(error):
                hint = f"Put a token into a file, and name that with {TOKEN_FILE}."
            raise self._wrong(URL, f"{URL}: {error}", hint) from None

    def verbs(self) -> dict[Verb, str]:
        paths = {verb: self._text(verb.setting, verb.value) for verb in Verb}
        for verb, path in paths.items():
            if path and not is_path(path):
                what = f"{verb.setting} takes a path below the URL, not {path!r}"
                hint = f"Write it without a slash at the front: {verb.setting}: {verb}"
                raise self._wrong(verb.setting, what, hint)
        return {verb: path for verb, path in paths.items() if path}

    def timeout(self) -> float:
        written = self._arguments.get(TIMEOUT)
        if written is None:
            return DEFAULT_TIMEOUT
        hint = "Write it as Go does: 100ms, 1s, 1m30s"
        if not isinstance(written, str):
            raise self._wrong(TIMEOUT, f"{TIMEOUT} has no unit: {written!r}", hint)
        try:
            seconds = parse_go_duration(written)
        except ValueError as error:
            raise self._wrong(TIMEOUT, f"{TIMEOUT}: {error}", hint) from None
        if not 0.001 <= seconds <= LONGEST_TIMEOUT:
            what = f"{TIMEOUT} takes 1ms to {LONGEST_TIMEOUT / 60:g}m, not {written}"
            raise self._wrong(TIMEOUT, what, hint)
        return seconds

    def ignorable(self) -> bool:
        match self._arguments.get(IGNORABLE):
            case None | False | "false":
                return False
            case True | "true":
                return True
            case written:
                what = f"{IGNORABLE} is true or false, not {written!r}"
                raise self._wrong(IGNORABLE, what, f"Write {IGNORABLE}: true")

    def managed_resources(self) -> frozenset[str]:
        written = self._arguments.get(MANAGED)
        names = written.split(",") if isinstance(written, str) else written
        if names is None:
            return frozenset()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            what = f"{MANAGED} is a list of names, not {written!r}"
            raise self._wrong(MANAGED, what, f"Write {MANAGED}: [nvidia.com/gpu]")
        return frozenset(name.strip() for name in names if name.strip())

    def file(self, key: str) -> Path | None:
        written = self._text(key, "secrets/file")
        return self._base / Path(written).expanduser() if written else None

    def _text(self, key: str, example: str) -> str:
        written = self._arguments.get(key)
        if written is None:
            return ""
        if not isinstance(written, str):
            hint = f"Write it like this: {key}: {example}"
            raise self._wrong(key, f"{key} is a text, not {written!r}", hint)
        return written.strip()
