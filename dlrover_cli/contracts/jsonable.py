"""Objects that are data: written as JSON, read again in another process, never unpickled.

What has a class is written with it, as ``{"__class__": "module::Class", …}``. Only Jsonables and
enums are read back; a document that names any other class is refused.
"""

import json
import math
from collections.abc import Mapping
from enum import Enum
from functools import reduce
from importlib import import_module
from typing import Any, Self, cast

from dlrover_cli.errors import UsageError

CLASS_KEY = "__class__"


class NotJsonable(UsageError):
    """Something in an object cannot be written, or what was written cannot be read."""


class Jsonable:
    """An object that is its attributes. Those that begin with ``_`` stay in this process.

    An attribute is a text, a number, a truth value, None, an enum's member, another Jsonable, or a
    list or a dict (with texts as keys) of these. A tuple comes back as a list.
    """

    def __init__(self) -> None:
        super().__init__()

    def to_json(self) -> dict[str, Any]:
        """The public attributes, ready for `json.dumps`. Raises NotJsonable, saying which."""
        return _fields(self, type(self).__name__)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The object that `to_json` has written; its constructor is not called."""
        made = cls.__new__(cls)
        for name, value in data.items():
            setattr(made, name, decode(value))
        return made


def encode(value: object, where: str = "it") -> Any:
    """What JSON can hold of ``value``, with the classes in it named. Raises NotJsonable."""
    match value:
        case Enum():
            return {CLASS_KEY: _name_of(value, where), "value": encode(value.value, where)}
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            raise NotJsonable(f"{where} is {value!r}, which JSON has no number for")
        case list() | tuple():
            return [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
        case Mapping():
            return _encoded_mapping(value, where)
        case Jsonable():
            return {CLASS_KEY: _name_of(value, where), **value.to_json()}
        case _:
            raise NotJsonable(
                f"{where} is a {type(value).__name__}, which cannot be written as JSON",
                hint="keep it out of the object, or in an attribute that begins with '_'",
            )


def decode(data: object) -> Any:
    """The value that `encode` has written. Raises NotJsonable."""
    match data:
        case {"__class__": str(name), **fields}:
            return _decoded(name, cast(Mapping[str, Any], fields))
        case Mapping():
            return {key: decode(item) for key, item in data.items()}
        case list():
            return [decode(item) for item in data]
        case _:
            return data


def check_round_trip(value: Jsonable, what: str) -> None:
    """Raise NotJsonable unless another process could read what this one writes."""
    hint = f"see to_json and from_json of {type(value).__qualname__}"
    try:
        deed = "written as"
        written = json.loads(json.dumps(encode(value, what)))
        deed = "read back from"
        again = json.loads(json.dumps(encode(decode(written), what)))
    except NotJsonable:
        raise
    except RecursionError:
        raise NotJsonable(f"{what} cannot be {deed} JSON: it holds itself", hint=hint) from None
    except Exception as error:  # the boundary to the author's to_json, from_json and setters
        raise NotJsonable(
            f"{what} cannot be {deed} JSON: {type(error).__name__}: {error}", hint=hint
        ) from error
    if again != written:
        raise NotJsonable(
            f"{what} is another one after it was written as JSON and read back: "
            f"{_first_difference(written, again)}",
            hint=hint,
        )


def _fields(value: object, where: str) -> dict[str, Any]:
    public = {name: each for name, each in vars(value).items() if not name.startswith("_")}
    return {name: encode(each, f"{where}.{name}") for name, each in public.items()}


def _encoded_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise NotJsonable(f"{where} has the key {key!r}, and keys must be texts")
        if key == CLASS_KEY:
            raise NotJsonable(f"{where} has the key {key!r}, which names the class of an object")
    return {key: encode(item, f"{where}[{key!r}]") for key, item in value.items()}


def _name_of(value: object, where: str) -> str:
    cls = type(value)
    if "<locals>" in cls.__qualname__ or cls.__module__ == "__main__":
        raise NotJsonable(
            f"{where} is a {cls.__qualname__} of {cls.__module__}, which another process cannot "
            "import",
            hint="define the class at the top of a module that can be imported",
        )
    return f"{cls.__module__}::{cls.__qualname__}"


def _decoded(name: str, fields: Mapping[str, Any]) -> Any:
    cls = _class_named(name)
    if issubclass(cls, Enum):
        return cls(decode(fields.get("value")))
    return cls.from_json(fields)


def _class_named(name: str) -> type[Jsonable] | type[Enum]:
    module, _, qualname = name.partition("::")
    try:
        found = reduce(getattr, qualname.split("."), cast(Any, import_module(module)))
    except Exception as error:  # the boundary to the author's module
        raise NotJsonable(
            f"the class {name} of a written object cannot be loaded: "
            f"{type(error).__name__}: {error}",
            hint="make its module importable, as it was when the object was written",
        ) from error
    if not isinstance(found, type) or not issubclass(found, Jsonable | Enum):
        raise NotJsonable(f"{name} in a written object is neither a Jsonable nor an enum")
    return found


def _first_difference(before: Any, after: Any, where: str = "") -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *after]:
            if before.get(key) != after.get(key) or (key in before) != (key in after):
                return _first_difference(before.get(key), after.get(key), f"{where}.{key}")
    return f"{where.lstrip('.') or 'it'} was {before!r} and became {after!r}"
