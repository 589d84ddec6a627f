"""A YAML or TOML file as plain values, and the words for what is wrong somewhere in it."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from math import isfinite
from pathlib import Path
from typing import Any

from dlrover_cli.config import toml_lines
from dlrover_cli.errors import UsageError

LARGEST = 1 << 20
"""Bytes of a file. What people write is far below, and what is above would take seconds to read."""

Keys = toml_lines.Path


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says. Texts, numbers, truth values, None, lists, and dicts with texts as keys."""

    path: Path
    value: Any
    lines: Mapping[Keys, int]

    def place(self, *keys: str | int) -> str:
        """`train.yaml:12`, the line of the key that these lead to, or of the one above it."""
        for length in range(len(keys), 0, -1):
            if line := self.lines.get(keys[:length]):
                return f"{self.path}:{line}"
        return str(self.path)

    def wrong(self, keys: Keys, what: str, hint: str) -> UsageError:
        """A complaint about what stands there."""
        return UsageError(f"{self.place(*keys)}: {what}", hint=hint)

    def example(self, key: str, value: str) -> str:
        """How a key is written in this kind of file; `value` is as YAML has it."""
        if not is_toml(self.path):
            return f"{key}: {value}"
        # Only to complain.
        import yaml

        return f"{key} = {_in_toml(yaml.safe_load(value))}"


def read_document(path: Path) -> Document:
    """The document in a file. Raises UsageError, with the line where there is one."""
    if path.suffix.lower() not in _SUFFIXES and (path.exists() or not _like(path)):
        raise UsageError(
            f"{path}: a job file's name ends in .yaml, .yml or .toml",
            hint=f"Rename it, for example to {path.stem or 'train'}.yaml",
        )
    text = _text(path)
    value, lines = _toml(path, text) if is_toml(path) else _yaml(path, text)
    document = Document(path, _plain(value), lines)
    _refuse_endless_numbers(document, document.value, ())
    return document


def is_toml(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            what = "a directory" if path.is_dir() else "not a regular file"
            raise UsageError(f"{path} is {what}", hint="Name a job file, such as train.yaml")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        near = _like(path) if isinstance(error, FileNotFoundError) else None
        hint = f"Did you mean {near}?" if near else "Name a job file that is there."
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    if len(content) > LARGEST:
        raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB", hint="Is this the job file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: byte {error.start} is not UTF-8", hint="Save the file as UTF-8."
        ) from None


def _like(path: Path) -> Path | None:
    """The job file beside ``path`` that is called nearly so."""
    # Only to complain.
    from difflib import get_close_matches

    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix.lower() in _SUFFIXES]
    except OSError:
        return None
    same = [name for name in sorted(names) if Path(name).stem in (path.name, path.stem)]
    near = same or get_close_matches(path.name, names, n=1)
    return path.with_name(near[0]) if near else None


def _yaml(path: Path, text: str) -> tuple[Any, Mapping[Keys, int]]:
    from dlrover_cli.config.yaml_tree import BadYaml, read_yaml

    try:
        return read_yaml(text)
    except BadYaml as bad:
        place = f"{path}:{bad.line}" if bad.line else str(path)
        raise UsageError(f"{place}: {bad}", hint=bad.hint) from None


def _toml(path: Path, text: str) -> tuple[Any, Mapping[Keys, int]]:
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{path}: it is nested too deeply", hint="Job files are flat.") from None
    except ValueError as error:
        # Also for a number of thousands of digits, which tomllib leaves to int().
        found = _TOML_PLACE.search(str(error))
        line = text.count("\n") + 1 if found is None else int(found["line"])
        reason = _TOML_PLACE.sub("", str(error)).replace(" (at end of document)", "")
        raise UsageError(
            f"{path}:{line}: it is not valid TOML: {reason}",
            hint='A job looks like this: [train], and below it engine = "torch"',
        ) from None
    try:
        return value, toml_lines.key_lines(text)
    except (ValueError, IndexError, RecursionError):
        return value, {}  # a complaint without its line is better than none


def _in_toml(value: Any) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{key} = {_in_toml(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(map(_in_toml, value))}]"
        case _:
            return json.dumps(value)


def _plain(value: Any) -> Any:
    """The same with TOML's dates and times as the texts that YAML has for them."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case date() | time():  # a datetime is a date, too
            return value.isoformat()
        case _:
            return value


def _refuse_endless_numbers(document: Document, value: Any, keys: Keys) -> None:
    match value:
        case dict():
            for key, item in value.items():
                _refuse_endless_numbers(document, item, (*keys, key))
        case list():
            for position, item in enumerate(value):
                _refuse_endless_numbers(document, item, (*keys, position))
        case float() if not isfinite(value):
            what = f"{value} is not a number that a job can be recorded with"
            raise document.wrong(keys, what, "Leave it out, or put it in quotes.")


_SUFFIXES = (".yaml", ".yml", ".toml")
_TOML_PLACE = re.compile(r" \(at line (?P<line>\d+), column \d+\)")
