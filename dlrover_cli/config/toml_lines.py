"""On which line of a TOML file a key stands, which `tomllib` does not tell.

Only for text that `tomllib` has accepted: this reads structure and checks nothing.
"""

import re
import tomllib
from collections.abc import Mapping

Path = tuple[str | int, ...]
"""Keys and array positions from the top: `("rules", 0, "when", "signal")`."""


def key_lines(text: str) -> Mapping[Path, int]:
    """The line, counted from 1, of every key and array element of a valid TOML document."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._last_element: dict[Path, int] = {}
        """Of each array of tables, the position of the table that is being filled."""

    def read(self) -> Mapping[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._took("[["):
                table = self._new_element(self._key())
                self._at += len("]]")
            elif self._took("["):
                table = self._existing(self._key())
                self._at += len("]")
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _new_element(self, key: Path) -> Path:
        array = (*self._existing(key[:-1]), key[-1])
        self._last_element[array] = self._last_element.get(array, -1) + 1
        element = (*array, self._last_element[array])
        self._note(array)
        self._note(element)
        return element

    def _existing(self, key: Path) -> Path:
        path: Path = ()
        for part in key:
            path = (*path, part)
            self._note(path)
            if path in self._last_element:
                path = (*path, self._last_element[path])
        return path

    def _pair(self, table: Path) -> None:
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path)
        self._at += len("=")
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        if self._took("["):
            self._array(path)
        elif self._took("{"):
            self._inline_table(path)
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        position = 0
        self._skip(_BLANK)
        while not self._took("]"):
            self._note((*path, position))
            self._value((*path, position))
            position += 1
            self._skip(_BLANK)
            self._took(",")
            self._skip(_BLANK)

    def _inline_table(self, path: Path) -> None:
        self._skip(_BLANK)
        while not self._took("}"):
            self._pair(path)
            self._skip(_BLANK)
            self._took(",")
            self._skip(_BLANK)

    def _key(self) -> Path:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            parts.append(_plain(self._skip(_KEY_PART)))
            self._skip(_SPACE)
            if not self._took("."):
                return tuple(parts)

    def _note(self, path: Path) -> None:
        self._lines.setdefault(path, self._text.count("\n", 0, self._at) + 1)

    def _took(self, token: str) -> bool:
        if self._text.startswith(token, self._at):
            self._at += len(token)
            return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not TOML at character {self._at}")
        self._at = found.end()
        return found[0]


def _plain(key_part: str) -> str:
    if key_part[0] in "\"'":
        return str(tomllib.loads(f"key = {key_part}")["key"])
    return key_part


_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"([ \t\n]|#[^\n]*)*")
_STRING = r'"([^"\\\n]|\\.)*"' + "|'[^'\n]*'"
_KEY_PART = re.compile(rf"{_STRING}|[A-Za-z0-9_-]+")
# A long string may end with up to two quotes of its own. Dates hold spaces; trailing ones may go.
_SCALAR = re.compile(
    r'"""([^\\]|\\.)*?"""(?!")|' + r"'''.*?'''(?!')|" + _STRING + r"|[^,\]}#\n]+", re.DOTALL
)
