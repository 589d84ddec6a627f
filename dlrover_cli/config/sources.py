"""Where a setting's value came from, so that every message and every plan can say it."""

import re
from dataclasses import dataclass, field
from enum import Enum


class SourceKind(Enum):
    """The places a value can come from, the strongest first."""

    FLAG = "flag"
    ENV = "environment"
    FILE = "file"
    DEFAULT = "default"
    DERIVED = "derived"  # worked out by the launcher from another setting, named in `where`


@dataclass(frozen=True, slots=True)
class Source:
    """One place: `--nnodes`, `PET_NNODES`, `dlrover.toml:nnodes`, or nothing for a default."""

    kind: SourceKind
    where: str = ""
    line: int | None = field(default=None, compare=False)
    """On which line of a file, counted from 1, if that is known."""

    def __str__(self) -> str:
        return self.where or self.kind.value

    @property
    def subject(self) -> str:
        """The words that start a sentence about the value, such as `dlrover.toml:3: nnodes`."""
        if self.kind is SourceKind.FILE:
            file, _, key = self.where.partition(":")
            return f"{key} in {file}" if self.line is None else f"{file}:{self.line}: {key}"
        return self.where

    def example(self, value: str) -> str:
        """How the setting is written at this place."""
        if self.kind is SourceKind.FILE:
            key = self.where.rpartition(":")[2].rpartition(".")[2]
            quoted = value if _TOML_LITERAL.fullmatch(value) else f'"{value}"'
            return f"{key} = {quoted}"
        return f"{self.where}={value}"


_TOML_LITERAL = re.compile(r'true|false|[0-9.]+|".*"|\[.*\]')
DEFAULT = Source(SourceKind.DEFAULT)
