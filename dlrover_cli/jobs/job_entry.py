"""One job of a job file, with the line of whatever is wrong in it.

All keys that any job may have are checked here. Further ones, and what is in `properties`, are for
the job's plugin to know.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dlrover_cli.config.values import shown
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.document import Document
from dlrover_cli.jobs.job_values import READERS, BadValue
from dlrover_cli.plugins.reference import parse_reference

DEFAULT_PLATFORM = "local"


@dataclass(frozen=True, slots=True)
class JobEntry:
    """What a file says about one job."""

    name: str
    platform: str
    engine: str
    plugin: str | None
    """``module::Class``, where the plugin is not an installed one."""
    after: tuple[str, ...]
    values: Mapping[str, Any]
    """What is named, by key; a key with nothing after it is not."""
    document: Document

    def where(self, *keys: str | int) -> str:
        """The place of a key of this job in the file: `train.yaml:12`."""
        return self.document.place(self.name, *keys)

    def wrong(self, what: str, hint: str, *keys: str | int) -> UsageError:
        """A complaint about what stands there."""
        return self.document.wrong((self.name, *keys), what, hint)


def read_entry(document: Document, name: str) -> JobEntry:
    """The job of a top-level key. Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise document.wrong(
            (name,),
            f"a job cannot be called {name!r}{_odd_letter(name)}",
            "Use letters, digits, '.', '_' and '-', begin with a letter or a digit, "
            "and stay within 64 characters.",
        )
    table = _table(document, name)
    values = {
        key: _value(document, name, key, value) for key, value in table.items() if value is not None
    }
    if "engine" not in values:
        raise _no_engine(document, name, table)
    _check_job_name(document, name, values)
    if "plugin" in values:
        parse_reference(values["plugin"], option=f"{document.place(name, 'plugin')}: plugin")
    return JobEntry(
        name=name,
        platform=values.get("platform", DEFAULT_PLATFORM),
        engine=values["engine"],
        plugin=values.get("plugin"),
        after=values.get("after", ()),
        values=values,
        document=document,
    )


def _odd_letter(name: str) -> str:
    """Some letters look like others."""
    odd = next((each for each in name if not each.isascii() and each.isprintable()), None)
    if odd is None:
        return ""
    return f": {odd!r} is {unicodedata.name(odd, f'U+{ord(odd):04X}')}"


def _table(document: Document, name: str) -> Mapping[str, Any]:
    table = document.value[name]
    if isinstance(table, dict):
        return table
    hint = f"Write {document.example('engine', 'torch')} and what else there is to say below it."
    if name in READERS:
        hint = "Each top-level key is a job: put these keys below a name, such as train."
    kind = "empty" if table is None else shown(table)
    raise document.wrong((name,), f"job {name!r} takes a mapping, and is {kind}", hint)


def _value(document: Document, name: str, key: str, value: object) -> Any:
    reader = READERS.get(key)
    if reader is None:
        return value
    try:
        return reader(value)
    except BadValue as bad:
        hint = bad.hint or f"Write it like this: {document.example(key, bad.example)}"
        raise document.wrong((name, key, *bad.keys), f"{bad.subject or key} {bad}", hint) from bad


def _no_engine(document: Document, name: str, table: Mapping[str, Any]) -> UsageError:
    unknown = [key for key in table if key not in READERS]
    near = get_close_matches("engine", unknown, n=1)
    hint = f"Add {document.example('engine', 'torch')}"
    if near:
        hint = f"Did you mean 'engine' where it says {near[0]!r}{_odd_letter(near[0])}?"
    return document.wrong((name, *near), f"job {name!r} has no engine", hint)


def _check_job_name(document: Document, name: str, values: Mapping[str, Any]) -> None:
    given = values.get("job_name", name)
    if given != name:
        what = f"job_name is {given!r}, and the job is called {name!r}"
        raise document.wrong((name, "job_name"), what, "Leave it out: the key above is the name.")


# A name becomes part of paths and of command lines: no separators, nothing hidden, no option.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
