"""A complaint about an option tells where its value really stands: a variable, a line of a file.

What is far from the settings, such as the loader of a plugin, knows an option and its value only.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.errors import UsageError


@contextmanager
def telling_sources(settings: LaunchSettings) -> Iterator[None]:
    """Errors of the block speak of `dlrover.toml:3: rdzv_backend`, not of `--rdzv-backend`."""
    try:
        yield
    except UsageError as error:
        error.message = _told(error.message, settings)
        error.args = (error.message, *error.args[1:])
        raise


def _told(message: str, settings: LaunchSettings) -> str:
    match = _OPTION.match(message)
    name = match and _NAMES.get(match[0].replace("_", "-"))
    if not match or not name:
        return message
    source = settings.source_of(name)
    if source.kind not in (SourceKind.ENV, SourceKind.FILE):
        return message
    return source.subject + message[match.end() :]


_OPTION = re.compile(r"--[\w-]+(?=[=: ])")
_NAMES: Mapping[str, str] = {setting.option.replace("_", "-"): setting.name for setting in SETTINGS}
