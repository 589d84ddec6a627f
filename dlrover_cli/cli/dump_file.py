"""The zip file of a dump: everything of a run directory, without what looks like a secret.

It appears under its name when it is complete. A file that grows meanwhile is taken as far as it was
when its turn came, and one that cannot be read is named instead of ending the dump.
"""

import json
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dlrover_cli.control.place import FILE as CONTROL_FILE
from dlrover_cli.control.redaction import (
    REDACTED,
    names_secret,
    names_secret_option,
    redacted,
    without_secrets,
)
from dlrover_cli.telemetry.whole_writes import replacing

_PIECE = 1 << 20
_ENVIRONMENT_KEYS = ("env", "environ", "environment", "envs")
_LARGEST_DOCUMENT = 1 << 26


@dataclass(slots=True)
class DumpFile:
    """Open while it is filled."""

    _zip: zipfile.ZipFile
    entries: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Raises OSError if it cannot be written; then nothing is left of it."""
        with (
            replacing(path) as raw,
            zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive,
        ):
            yield cls(archive)

    def add(self, name: str, text: str) -> None:
        self._zip.writestr(name, text)
        self.entries.append(name)

    def add_run(self, directory: Path) -> None:
        """All files of a run directory; documents and journals without secrets."""
        for path in sorted(directory.rglob("*")):
            name = f"run/{path.relative_to(directory)}"
            try:
                if not stat.S_ISREG(path.lstat().st_mode) or path.name == CONTROL_FILE:
                    continue
                if path.suffix in (".json", ".jsonl"):
                    self._add_document(name, path)
                else:
                    self._add_file(name, path)
            except OSError as error:
                self.problems.append(f"{path}: {error.strerror}")

    def _add_document(self, name: str, path: Path) -> None:
        if path.stat().st_size > _LARGEST_DOCUMENT:
            self.problems.append(f"{path}: left out, since it is too large to be searched")
            return
        text = path.read_text(errors="replace")
        if path.suffix == ".jsonl":
            self.add(name, "".join(f"{_cleaned(line)}\n" for line in text.splitlines()))
        else:
            self.add(name, _cleaned(text, indent=2) + "\n")

    def _add_file(self, name: str, path: Path) -> None:
        left = path.stat().st_size
        info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
        info.compress_type = zipfile.ZIP_DEFLATED
        with path.open("rb") as source, self._zip.open(info, "w", force_zip64=True) as target:
            while left > 0 and (piece := source.read(min(_PIECE, left))):
                target.write(piece)
                left -= len(piece)
        self.entries.append(name)


def _cleaned(text: str, indent: int | None = None) -> str:
    try:
        return json.dumps(_without_secrets(json.loads(text)), indent=indent)
    except (ValueError, RecursionError):
        return without_secrets(text)


def _without_secrets(value: Any, key: str = "") -> Any:
    """Names of an environment, of documents and of options on a command line; values everywhere."""
    match value:
        case dict() if key in _ENVIRONMENT_KEYS and all(map(_is_text, value.values())):
            return redacted(value)
        case dict():
            return {name: _without_secrets(each, str(name)) for name, each in value.items()}
        case list():
            before = ["", *(each if isinstance(each, str) else "" for each in value)]
            return [
                REDACTED if names_secret_option(option) else _without_secrets(each, key)
                for option, each in zip(before, value, strict=False)
            ]
        case str() if value and names_secret(key):
            return REDACTED
        case str():
            return without_secrets(value)
        case _:
            return value


def _is_text(value: object) -> bool:
    return isinstance(value, str)
