"""From the properties of a torch job to the command line of `dlrover-run` that they mean.

Every setting is a property, under its name in a config file; `script` and `args` are what runs.
Values are read as those of a config file are, so that a complaint is the same but for its place.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dlrover_cli.config.declaring import Setting
from dlrover_cli.config.derive import check_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.config.values import Value, read_text, read_toml, shown
from dlrover_cli.errors import ConfigError

SCRIPT = "script"
ARGS = "args"


def launch_arguments(properties: Mapping[str, Any], where: Callable[[str], str]) -> tuple[str, ...]:
    """The arguments for `dlrover-run`: options, then ``--``, the script and its arguments.

    `where` gives the place of a property for complaints, such as `train.yaml:12`. A property that
    is None counts as not given.
    """
    given = {key: value for key, value in properties.items() if value is not None}
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    for key, value in given.items():
        if key in (SCRIPT, ARGS):
            continue
        source = _property(key, where)
        setting = _setting(key, source)
        if setting.name in values:
            what = f"{source.subject} is given twice, with a dash and with an underscore."
            raise _wrong(setting.key, what, f"Keep {setting.key}.")
        values[setting.name] = _value(setting, value, source)
        sources[setting.name] = source
    script = _script(given.get(SCRIPT), _property(SCRIPT, where))
    args = _args(given.get(ARGS, []), _property(ARGS, where))
    settings: dict[str, Any] = {**values, "training_script": script, "sources": sources}
    check_settings(LaunchSettings(**settings))
    options = [text for name, value in values.items() for text in options_of(_BY_NAME[name], value)]
    return (*options, "--", script, *args)


@dataclass(frozen=True, slots=True)
class _Property(Source):
    """A source that is a line of a job file; `where` is the key alone."""

    place: str = ""

    @property
    def subject(self) -> str:
        return f"{self.place}: {self.where}"

    def example(self, value: str) -> str:
        if _IN_TOML.search(self.place):
            return Source(SourceKind.FILE, f":{self.where}").example(value)
        return f"{self.where}: {value}"


def _property(key: str, where: Callable[[str], str]) -> _Property:
    return _Property(SourceKind.FILE, key, place=where(key))


def _setting(key: str, source: _Property) -> Setting:
    plain = key.replace("-", "_")
    if plain in _REFUSED:
        why, hint = _REFUSED[plain]
        raise _wrong(key, f"{source.subject} {why}.", hint)
    setting = _BY_KEY.get(plain)
    if setting is not None:
        return setting
    near = get_close_matches(plain, [*_BY_KEY, SCRIPT, ARGS], n=1)
    raise _wrong(
        key,
        f"{source.subject} is not a property of a torch job.",
        f"Did you mean {near[0]}?" if near else "All settings: dlrover-run --help",
    )


def _value(setting: Setting, value: object, source: _Property) -> Value:
    read = read_toml(setting, value, source)
    for text in read if isinstance(read, tuple) else (read,):
        if isinstance(text, str):
            _refuse_nul(text, source)
    if isinstance(read, tuple) and _read_back(setting, read, source) != read:
        raise _wrong(
            setting.name,
            f"{source.subject} has a text in it that cannot be given on a command line.",
            "Leave out empty texts, spaces around them, and commas.",
        )
    return read


def _read_back(setting: Setting, texts: tuple[str, ...], source: _Property) -> tuple[str, ...]:
    """What the launcher would make of the options for these."""
    found: list[str] = []
    for option in options_of(setting, texts):
        read = read_text(setting, option.partition("=")[2], source)
        found += read if isinstance(read, tuple) else ()
    return tuple(found)


def options_of(setting: Setting, value: Value) -> list[str]:
    """The options of `dlrover-run` that set it to this value."""
    match value:
        case bool():
            return [setting.option] if value else []
        case ():
            return []
        case tuple() if setting.repeatable:
            return [f"{setting.option}={each}" for each in value]
        case tuple():
            # As the launcher reads it: a comma within a text is doubled.
            joined = ",".join(each.replace(",", ",,") for each in value)
            return [f"{setting.option}={joined}"]
        case _:
            return [f"{setting.option}={value}"]


def _script(value: object, source: _Property) -> str:
    hint = f"Write it like this: {source.example('train.py')}"
    if value is None:
        raise _wrong(SCRIPT, f"{source.place}: a torch job needs a {SCRIPT} to run.", hint)
    if not isinstance(value, str) or not value:
        raise _wrong(SCRIPT, f"{source.subject} takes a text, not {shown(value)}.", hint)
    _refuse_nul(value, source)
    return value


def _args(value: object, source: _Property) -> list[str]:
    if not isinstance(value, list | tuple):
        raise _wrong(
            ARGS,
            f"{source.subject} takes a list of texts, not {shown(value)}.",
            f"Write it like this: {source.example(_ARGS_EXAMPLE)}",
        )
    for position, each in enumerate(value):
        if not isinstance(each, str):
            # 007 and 1.10 would be other texts by now; only who wrote them knows what was meant.
            raise _wrong(
                ARGS,
                f"{source.subject}[{position}] takes a text, not {shown(each)}.",
                _IN_QUOTES if _is_plain(each) else "Write a text.",
            )
        _refuse_nul(each, source)
    return list(value)


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_nul(text: str, source: _Property) -> None:
    if "\0" in text:
        what = f"{source.subject} holds a NUL character, which no argument can have."
        raise _wrong(source.where, what, "Leave it out.")


def _wrong(setting: str, what: str, hint: str) -> ConfigError:
    return ConfigError(what, setting=setting, hint=hint)


_BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}
_BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}
_IN_TOML = re.compile(r"\.toml(:\d+)?$", re.IGNORECASE)
_IN_QUOTES = "Put it in quotes, just as you wrote it."
_ARGS_EXAMPLE = '["--epochs", "3"]'
_TRY = "Try the launch first: dlrover-run --dry-run, with the same settings."
_DEBUGGER = (
    "needs a person at a terminal, and a submitted job has none",
    "Run it in the foreground: dlrover-run, with the same settings.",
)
_REFUSED: Mapping[str, tuple[str, str]] = {
    "dry_run": ("starts nothing, and a submitted job is there to run", _TRY),
    "json": ("is for --dry-run, and a submitted job is there to run", _TRY),
    "interactive": (
        "asks on a terminal, and a submitted job has none",
        "Decide with failover_rules or dynamic_failover_extension instead.",
    ),
    "debug_rank": _DEBUGGER,
    "debugger": _DEBUGGER,
    "pdb": _DEBUGGER,
    "failover": (
        "is a table of config files",
        "Put the rules into a file of their own, and name it in failover_rules.",
    ),
}
"""What a config file or a command line may say, and a job may not: why not, and what instead."""
