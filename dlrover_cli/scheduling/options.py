"""The settings of one extender from options, in place of a file."""

from collections.abc import Mapping
from pathlib import Path

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.arguments import (
    CA_FILE,
    IGNORABLE,
    MANAGED,
    TIMEOUT,
    TOKEN_FILE,
    URL,
    make_settings,
    suggestion,
)
from dlrover_cli.scheduling.settings import ExtenderSettings

OPTIONS: Mapping[str, str] = {
    URL: "--extender_url",
    TIMEOUT: "--extender_timeout",
    IGNORABLE: "--extender_ignorable",
    MANAGED: "--extender_managed_resources",
    TOKEN_FILE: "--extender_token_file",
    CA_FILE: "--extender_ca_file",
}
VERBS = "--extender_verbs"


def from_options(
    url: str,
    *,
    timeout: str = "",
    verbs: str = "",
    ignorable: bool = False,
    managed_resources: str = "",
    token_file: str = "",
    ca_file: str = "",
) -> ExtenderSettings:
    """Settings from the texts of options; raises UsageError that names the option.

    ``verbs`` is like ``predicate,prioritize=score``: hooks, each with its path where that is not
    the hook's own name. Without it every hook is called.
    """
    given = {
        URL: url,
        TIMEOUT: timeout,
        MANAGED: managed_resources,
        TOKEN_FILE: token_file,
        CA_FILE: ca_file,
    }
    arguments: dict[str, str | bool] = {key: text for key, text in given.items() if text}
    arguments |= {IGNORABLE: ignorable, **_verbs(verbs)}
    return make_settings(arguments, Path(), _wrong)


def _verbs(written: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in written.split(","))):
        name, _, path = part.partition("=")
        if name not in tuple(Verb):
            hint = suggestion(name, tuple(Verb))
            raise UsageError(f"{VERBS}: there is no verb {name!r}", hint=hint)
        chosen[Verb(name).setting] = path or name
    return chosen or {verb.setting: verb.value for verb in Verb}


def _wrong(key: str, what: str, hint: str) -> UsageError:
    option = OPTIONS.get(key, VERBS)
    return UsageError(what.replace(key, option), hint=hint.replace(f"{key}: ", f"{option}="))
