"""What a job file says under `properties:`, read with one sentence for whatever is wrong in it."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from dlrover_cli.config.values import shown
from dlrover_cli.errors import ConfigError


class Properties:
    """The properties of one job. Every method raises ConfigError, with the place in the file."""

    def __init__(self, values: Mapping[str, Any], engine: str, place: Callable[[str], str]) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}
        self.place = place
        self._engine = engine

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def refuse_others(self, *known: str) -> None:
        """Complain about the first property that is none of these."""
        for name in self.values:
            if name in known:
                continue
            near = get_close_matches(name.lower(), known, n=1)
            raise ConfigError(
                f"{self.place(name)}: the engine {self._engine!r} has no property {name!r}",
                setting=name,
                hint=f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}.",
            )

    def is_text(self, name: str) -> bool:
        return isinstance(self.values.get(name), str)

    def text(self, name: str, default: str | None = None) -> str:
        """A text with something in it, or the default."""
        if name not in self and default is not None:
            return default
        text = self._checked(name, name, self.values.get(name))
        if not text:
            raise self.wrong(name, "is empty", "Give it a value, or leave it out.")
        return text

    def texts(self, name: str) -> list[str]:
        """A list of texts; an empty one if the property is not there."""
        value = self.values.get(name, [])
        if not isinstance(value, list | tuple):
            hint = f"Write it like this: {name}: [one, two]"
            raise self.wrong(name, f"takes a list of texts, not {_shown(value)}", hint)
        return [self._checked(name, f"{name}[{at}]", each) for at, each in enumerate(value)]

    def texts_by_name(self, name: str) -> dict[str, str]:
        """A mapping of texts, such as environment variables; empty if it is not there."""
        value = self.values.get(name, {})
        hint = f'Write it like this: {name}: {{NAME: "value"}}'
        if not isinstance(value, Mapping):
            raise self.wrong(name, f"takes a mapping, not {_shown(value)}", hint)
        for key in value:
            if not isinstance(key, str) or not key or "=" in key or "\0" in key:
                raise self.wrong(name, f"cannot have {key!r}, no variable is called so", hint)
        return {key: self._checked(name, f"{name}.{key}", each) for key, each in value.items()}

    def flag(self, name: str) -> bool:
        """Whether it is there and true."""
        value = self.values.get(name, False)
        if isinstance(value, bool):
            return value
        hint = f"Write it like this: {name}: true"
        raise self.wrong(name, f"takes true or false, not {_shown(value)}", hint)

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds that can be waited for."""
        value = self.values.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return float(value)
        hint = f"Write it like this: {name}: 30"
        raise self.wrong(name, f"takes a number of seconds, not {_shown(value)}", hint)

    def wrong(self, name: str, what: str, hint: str) -> ConfigError:
        """A complaint about one property."""
        return ConfigError(f"{self.place(name)}: {name} {what}", setting=name, hint=hint)

    def _checked(self, name: str, called: str, value: Any) -> str:
        """``called`` is the text's own name within the property."""
        if isinstance(value, str) and "\0" not in value:
            return value
        if isinstance(value, str):
            what, hint = "has a NUL in it, which no process can be given", "Take it out."
        else:
            what = f"takes a text, not {_shown(value)}"
            # 007 and 1.10 would be other texts by now.
            is_plain = isinstance(value, int | float)
            hint = "Put it in quotes, just as you wrote it." if is_plain else "Write a text."
        raise ConfigError(f"{self.place(name)}: {called} {what}", setting=name, hint=hint)


def _shown(value: Any) -> str:
    return shown(value, table="a mapping")
