"""The values that may stand in a job: each reader takes what a file holds, or says why not."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from dlrover_cli.config.values import shown
from dlrover_cli.contracts.jobs import ExecutionMode, PeriodicConfig
from dlrover_cli.jobs.periodic import BadPeriodicConfig, parse_periodic

Keys = tuple[str | int, ...]


class BadValue(ValueError):
    """A value that cannot be used; the message goes on after the name of its key.

    Where something within the value is wrong, `keys` lead to it, and it may be the `subject`.
    """

    def __init__(
        self, what: str, *, hint: str = "", example: str = "", keys: Keys = (), subject: str = ""
    ) -> None:
        super().__init__(what)
        self.subject = subject
        self.hint = hint
        self.example = example
        self.keys = keys


def suggestion(written: str, known: tuple[str, ...]) -> str:
    """A hint for a name that is not among those that are known."""
    near = get_close_matches(written.lower(), known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."


def word(value: object) -> str:
    """A name of something that exists elsewhere."""
    if not isinstance(value, str):
        raise BadValue(f"takes a name, not {_shown(value)}", hint="Put it in quotes.")
    if not value or not value.isprintable() or value != value.strip():
        raise BadValue(
            f"takes a name, not {value!r}", hint="Write one line without spaces around it."
        )
    return value


def names(value: object) -> tuple[str, ...]:
    """`prepare`, or `[prepare, download]`."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise BadValue(f"takes a list of jobs, not {_shown(value)}", example="[prepare]")
    for position, name in enumerate(given):
        if not isinstance(name, str):
            what = f"takes names of jobs, not {_shown(name)}"
            raise BadValue(what, hint="Put the name in quotes.", keys=(position,))
        if name in given[:position]:
            what = f"names {name!r} twice"
            raise BadValue(what, hint="Keep one of the two.", keys=(position,))
    return tuple(given)


def periodic_config(value: object) -> PeriodicConfig:
    """`{interval: 1h30m}` or `{cron: "30 6 * * MON-FRI"}`."""
    table = _mapping(value, "{interval: 1h30m}")
    for key in table:
        if key not in _PERIODIC:
            raise BadValue(f"has no key {key!r}", hint=suggestion(key, _PERIODIC), keys=(key,))
    config = PeriodicConfig(**table)
    try:
        parse_periodic(config)
    except BadPeriodicConfig as bad:
        hint = bad.hint or ""
        raise BadValue(bad.what, hint=hint, keys=(bad.key,), subject=bad.key) from bad
    return config


def exec_mode(value: object) -> ExecutionMode:
    if isinstance(value, str) and value.upper() in ExecutionMode.__members__:
        return ExecutionMode[value.upper()]
    modes = " or ".join(ExecutionMode.__members__)
    raise BadValue(f"takes {modes}, not {_shown(value)}", example="BATCH")


def properties(value: object) -> Mapping[str, Any]:
    return _mapping(value, "{script: train.py}")


def resources(value: object) -> Mapping[str, Any]:
    """`{cpu: 4, memory: 8Gi}`; the amounts stay as they are written."""
    table = _mapping(value, "{cpu: 4, memory: 8Gi}")
    for name, amount in table.items():
        if _RESOURCE.fullmatch(name) is None:
            what = f"cannot have {name!r}, which is not the name of a resource"
            raise BadValue(what, hint="Names are like cpu or nvidia.com/gpu.", keys=(name,))
        if not _is_quantity(amount):
            raise BadValue(
                f"takes an amount of {name}, not {_shown(amount)}",
                hint="Write a number that is not negative, or one with a unit: 0.5, 500m, 8Gi",
                keys=(name,),
            )
    return table


def priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"takes a whole number, not {_shown(value)}", example="10")
    if abs(value) > _HIGHEST:
        raise BadValue(f"takes -{_HIGHEST:,} to {_HIGHEST:,}, not {value}", example="10")
    return value


def _mapping(value: object, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadValue(f"takes a mapping, not {_shown(value)}", example=example)
    return value


def _is_quantity(value: object) -> bool:
    match value:
        case bool():
            return False
        case int() | float():
            return value >= 0
        case str():
            return _QUANTITY.fullmatch(value) is not None
        case _:
            return False


def _shown(value: object) -> str:
    return shown(value, table="a mapping")


READERS: Mapping[str, Callable[[object], Any]] = {
    "job_name": word,
    "platform": word,
    "engine": word,
    "plugin": word,
    "after": names,
    "periodic_config": periodic_config,
    "exec_mode": exec_mode,
    "properties": properties,
    "resources": resources,
    "queue": word,
    "priority": priority,
}
"""By key: what may be said about any job."""

_PERIODIC = ("interval", "cron", "start_date")
_HIGHEST = 1_000_000_000
_RESOURCE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_QUANTITY = re.compile(
    r"\+?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?"
)
