"""Reading a JSON document field by field: each thing wrong with it becomes one sentence."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from dlrover_cli.errors import UsageError

_Member = TypeVar("_Member", bound=Enum)
_REQUIRED: Any = object()


class Document:
    """A JSON object that is being read; it remembers which keys were asked for."""

    def __init__(self, data: object, *, where: str) -> None:
        self._where = where
        if not isinstance(data, Mapping):
            raise self._complaint(f"must be a JSON object and is {_kind_of(data)}")
        self._data: Mapping[object, object] = data
        self._known: set[str] = set()

    def check_schema_version(self, newest: int) -> None:
        version = self.integer("schema_version", default=newest)
        if not 1 <= version <= newest:
            raise self._complaint(
                f"has schema_version {version}, this program reads 1 to {newest}",
                hint="read it with the version of dlrover-cli that wrote it, or a newer one",
            )

    def integer(self, key: str, *, default: int = _REQUIRED) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_type(key, "a whole number", value)
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self._value(key, None) is None else self.integer(key)

    def text(self, key: str, *, default: str = _REQUIRED) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string", value)
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self._value(key, None) is None else self.text(key)

    def flag(self, key: str, *, default: bool = _REQUIRED) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong_type(key, "true or false", value)
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._value(key, {})
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self._wrong_type(key, "an object", value)
        return value

    def items(self, key: str) -> Sequence[object]:
        value = self._value(key, [])
        if not isinstance(value, list | tuple):
            raise self._wrong_type(key, "an array", value)
        return value

    def member(self, key: str, members: type[_Member], *, default: _Member) -> _Member:
        value = self._value(key, default.value)
        for member in members:
            if member.value == value:
                return member
        known = ", ".join(str(member.value) for member in members)
        raise self._complaint(f"has {key}={value!r}, which is none of: {known}")

    def refuse_unknown_keys(self) -> None:
        for key in self._data:
            if key in self._known:
                continue
            near = get_close_matches(str(key), self._known, n=1)
            hint = (
                f"did you mean {near[0]!r}?"
                if near
                else f"it has: {', '.join(sorted(self._known))}"
            )
            raise self._complaint(f"has an unknown key {key!r}", hint=hint)

    def _value(self, key: str, default: object) -> object:
        self._known.add(key)
        value = self._data.get(key, default)
        if value is _REQUIRED:
            raise self._complaint(f"lacks {key!r}")
        return value

    def _wrong_type(self, key: str, expected: str, value: object) -> UsageError:
        return self._complaint(f"has a {key!r} that must be {expected} and is {_kind_of(value)}")

    def _complaint(self, what: str, *, hint: str | None = None) -> UsageError:
        return UsageError(f"{self._where} {what}", hint=hint)


def plain(value: object, *, depth: int = 32) -> Any:
    """The nearest thing that JSON can hold; what it cannot hold becomes its `repr`."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > 0 and isinstance(value, Mapping):
        return {str(key): plain(item, depth=depth - 1) for key, item in value.items()}
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth=depth - 1) for item in value]
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the object may be a user's, and a record must not fail
        return f"<{type(value).__name__}>"


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"{value}".lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"
