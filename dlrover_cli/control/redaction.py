"""What can be shown to others: names stay, what looks like a secret does not."""

import re
from collections.abc import Mapping

REDACTED = "[redacted]"
_IN_ENVIRONMENT = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|COOKIE|AUTH|BEARER|CONNECTION_?STRING|KEY|SIGNATURE|_PWD$|_PAT$|DSN|WEBHOOK",
    re.IGNORECASE,
)
# Not `tokens` or `tokenizer`, which every language model has.
_SURE = (
    r"[\w.-]*(?:token(?![a-z])|secret|passw(?:or)?d|passphrase|credential"
    r"|(?:api|access|private)[_-]?key)"
)
_NAME = re.compile(rf"(?i){_SURE}[\w.-]*")
_OPTION = re.compile(rf"(?i)--?(?:{_SURE}[\w.-]*|(?:[\w.-]*[_.-])?key)")
_USER_INFO = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^/?#\s'\"]*@")
_PARAMETER = re.compile(
    r"(?i)(?P<name>[?&;][\w.-]*(?:token|secret|passw|key|sig|credential|auth)[\w.-]*=)[^&;\s'\"]+"
)
_KEY_OPTION = re.compile(r"(?i)(?P<name>(?<!\S)--?(?:[\w.-]*[_.-])?key=)(?!\[redacted)\S+")
_BEARER = re.compile(r"(?i)\b(?P<scheme>bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_ASSIGNED = re.compile(
    rf"(?i)(?P<name>(?<![\w.-]){_SURE}[\w.-]*(?:\s*[=:]\s*|[\"']\s*[:=]\s*)[\"']?)"
    r"(?!\[redacted)(?P<value>[^\s,;&\"'}\])]+)"
)


def redacted(environ: Mapping[str, str]) -> dict[str, str]:
    """The same names, in order."""
    return {
        name: REDACTED if value and _IN_ENVIRONMENT.search(name) else without_secrets(value)
        for name, value in sorted(environ.items())
    }


def names_secret(name: str) -> bool:
    """Whether a value of this name is a secret for sure."""
    return _NAME.fullmatch(name) is not None


def names_secret_option(argument: str) -> bool:
    """Whether the argument that follows on a command line is one: `--token`."""
    return _OPTION.fullmatch(argument) is not None


def without_secrets(text: str) -> str:
    """With user names and passwords taken out of URLs, and what is called a token or a key."""
    text = _USER_INFO.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _PARAMETER.sub(rf"\g<name>{REDACTED}", text)
    text = _KEY_OPTION.sub(rf"\g<name>{REDACTED}", text)
    text = _BEARER.sub(rf"\g<scheme> {REDACTED}", text)
    return _ASSIGNED.sub(rf"\g<name>{REDACTED}", text)
