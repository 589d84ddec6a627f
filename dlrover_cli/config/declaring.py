"""How a setting is declared: what can be said about one, and what follows from that.

Its option, its variables and its key in a config file follow from the field's name, and what its
value is from the field's type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any


class Panel(Enum):
    """The sections of the help page, in reading order."""

    WORKERS = "Workers"
    SCRIPT = "Script"
    RENDEZVOUS = "Rendezvous"
    RESTARTS = "Restarts and shutdown"
    CHECK = "Check of the nodes"
    LOGS = "Logs"
    PLATFORM = "Platform"
    SCHEDULING = "Scheduling"
    FAILOVER = "Failover"
    PLUGINS = "Plugins"
    INSPECT = "Inspect"


class Kind(Enum):
    """What a value is; read off the field's type."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    FLAG = "flag"
    TEXTS = "texts"


def setting(default: Any, *, panel: Panel, about: str, **declaration: Any) -> Any:
    """Declare one setting; what else can be said about it are the fields of `Setting`."""
    metadata = {"setting": {"panel": panel, "about": about, **declaration}}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting, as the readers and the help page see it."""

    name: str
    kind: Kind
    default: Any
    panel: Panel
    about: str
    option: str
    """The long option in its shown spelling, `--nproc-per-node`."""
    env: tuple[str, ...]
    """The variables that are read, the strongest first."""
    torchrun: bool = True
    short: str | None = None
    metavar: str = ""
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    """Offered by completion, not enforced."""
    default_text: str = ""
    """Stands for the default on the help page."""
    numeric: bool = False
    """A text that may be a plain number in a config file."""
    repeatable: bool = False
    """Adds up when repeated, where the last one wins otherwise."""
    whole: bool = False
    """A repeatable one that is not split at commas."""

    @property
    def key(self) -> str:
        """The name in a config file, `nproc_per_node`."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All option strings: with dashes first, with underscores, short."""
        return _spellings(self.option, self.short)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An option that answers at once instead of setting something."""

    option: str
    about: str
    short: str | None = None
    torchrun: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        return _spellings(self.option, self.short)


Option = Setting | Action


def declared(holder: type[Any]) -> tuple[Setting, ...]:
    """The settings among the fields of a dataclass, in their order."""
    found = []
    for each in fields(holder):
        if "setting" not in each.metadata:
            continue
        declaration = dict(each.metadata["setting"])
        key = declaration.pop("option", each.name)
        env = [f"DLROVER_{key.upper()}"]
        if declaration.get("torchrun", True):
            env.append(f"PET_{each.name.upper()}")
        declaration.setdefault("env", tuple(env))
        found.append(
            Setting(
                name=each.name,
                kind=_KINDS[each.type],
                default=each.default,
                option="--" + key.replace("_", "-"),
                **declaration,
            )
        )
    return tuple(found)


_KINDS: Mapping[Any, Kind] = {
    str: Kind.TEXT,
    str | None: Kind.TEXT,
    int: Kind.WHOLE,
    int | None: Kind.WHOLE,
    float: Kind.NUMBER,
    bool: Kind.FLAG,
    tuple[str, ...]: Kind.TEXTS,
}


def _spellings(option: str, short: str | None) -> tuple[str, ...]:
    underscored = "--" + option[2:].replace("-", "_")
    return tuple(dict.fromkeys(name for name in (option, underscored, short) if name))
