"""The user's own lines of a traceback or of a fault dump, out of all that lie in between."""

import linecache
import os
import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PYTHONS = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n'
    r'(?:(?! *File ") {4,}(?P<source>[^\n]+)\n?)?',
    re.MULTILINE,
)
_FAULT_HANDLERS = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+) in (?P<function>[^\n]+)$', re.MULTILINE
)
_EARLIER = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause)[^\n]*$",
    re.MULTILINE,
)
_OURS = f"{os.sep}dlrover_cli{os.sep}"
_FOREIGN = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def is_users(self) -> bool:
        """Whether it is neither Python's, nor an installed package's, nor the launcher's."""
        if self.file.startswith("<") or any(part in self.file for part in (*_FOREIGN, _OURS)):
            return False
        return not any(self.file.startswith(library) for library in _LIBRARIES)

    @property
    def place(self) -> str:
        """Where it is, as a person in the current directory would write it."""
        file = self.file.removeprefix(f"{os.getcwd()}{os.sep}")
        return f"{file}:{self.line} in {self.function}"

    def to_json(self) -> dict[str, object]:
        return {
            "file": self.file,
            "line": self.line,
            "function": self.function,
            "source": self.source,
        }


def frame_from(document: Mapping[str, Any]) -> Frame:
    """What `to_json` wrote."""
    return Frame(
        str(document["file"]),
        int(document["line"]),
        str(document["function"]),
        str(document.get("source", "")),
    )


def frames_of(traceback: str) -> tuple[Frame, ...]:
    """All frames, outermost first; of a chain of exceptions, those of the last one."""
    last = _EARLIER.split(traceback)[-1]
    found = tuple(_frame(match) for match in _PYTHONS.finditer(last))
    if found:
        return found
    # A fault dump begins with the innermost frame, and has no source.
    thread = last.split("Current thread ")[-1].split("\n\n")[0]
    return tuple(_frame(match) for match in _FAULT_HANDLERS.finditer(thread))[::-1]


def own_frames(traceback: str, most: int = 5) -> tuple[Frame, ...]:
    """The user's frames, the innermost ones if there are too many; any at all if none is his."""
    frames = frames_of(traceback)
    own = [frame for frame in frames if frame.is_users]
    return tuple((own or list(frames)[-1:])[-most:])


def _frame(match: re.Match[str]) -> Frame:
    parts = match.groupdict()
    source = parts.get("source") or linecache.getline(parts["file"], int(parts["line"]))
    return Frame(parts["file"], int(parts["line"]), parts["function"].strip(), source.strip())


_LIBRARIES = tuple(
    f"{path}{os.sep}"
    for name in ("stdlib", "platstdlib")
    if (path := sysconfig.get_paths().get(name))
)
