"""What can go wrong when a service is asked; every one of them is an error of the service.

ServiceFailed
├── ServiceSilent          the deadline passed, whatever it was spent on
├── ServiceUnreachable     no name, no connection, no trust, or the connection broke
├── ServiceNotAsked        it failed a moment ago, and its next deadline is saved
├── BadStatus              it answered with something other than 200
└── BadAnswer              it answered 200 with something that cannot be used
"""

from dlrover_cli.errors import DlroverError
from dlrover_cli.words import one_line

LONGEST_SHOWN = 300
"""Characters of what a service says that a person gets to see."""


class ServiceFailed(DlroverError):
    """The service could not be asked, or its answer could not be used."""

    def __init__(self, url: str, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{url} {what}", hint=hint)
        self.url = url
        self.what = what


class ServiceSilent(ServiceFailed):
    """It did not answer in time."""


class ServiceUnreachable(ServiceFailed):
    """It could not be connected to, or the connection broke."""


class ServiceNotAsked(ServiceFailed):
    """It is left alone for a while after it has failed."""


class BadStatus(ServiceFailed):
    """It answered with a status other than 200."""

    def __init__(self, url: str, what: str, *, status: int) -> None:
        super().__init__(url, what)
        self.status = status


class BadAnswer(ServiceFailed):
    """What it answered makes no sense."""


def shown(text: str, longest: int = LONGEST_SHOWN) -> str:
    """In one line that no terminal takes for a command, and not longer than a person reads."""
    # No more than is needed is looked at: it may be ten megabytes.
    start = text[: 4 * longest]
    line = one_line(start)
    return line if len(line) <= longest and len(start) == len(text) else f"{line[:longest]}…"
