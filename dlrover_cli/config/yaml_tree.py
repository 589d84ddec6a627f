"""A YAML text as plain values and the line of each, read strictly.

Plain words follow YAML 1.2: `1:4`, `yes` and dates are texts, as they look; `010` is ten. Keys are
texts and stand once. `<<` merges a mapping. No tag makes an object. Aliases may repeat a value, but
not without bounds.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from dlrover_cli.config.toml_lines import Path

MOST_VALUES = 100_000
"""More than that no file of a sensible size has, unless its aliases multiply."""


class BadYaml(ValueError):
    """The text cannot be read; `line` counts from 1 and is 0 where nobody can tell."""

    def __init__(self, what: str, *, line: int, hint: str) -> None:
        super().__init__(what)
        self.line = line
        self.hint = hint


def read_yaml(text: str) -> tuple[Any, Mapping[Path, int]]:
    """The value of a document, None if it is empty, and the lines of its keys and list items."""
    try:
        root = _Loader(text).get_single_node()
        if root is None:
            return None, {}
        walk = _Walk()
        return walk.value(root, ()), walk.lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and "<stream end>" in str(error.problem):
            mark = error.context_mark  # what is missing at the end was opened there
        raise BadYaml(
            f"it is not valid YAML: {_in_words(error)}",
            line=mark.line + 1 if mark else 0,
            hint=_YAML_HINT,
        ) from None
    except ReaderError as error:
        raise BadYaml(
            f"it holds the character {chr(int(error.character))!r}, which YAML does not allow",
            line=text.count("\n", 0, error.position) + 1,
            hint="Leave it out, or write it as an escape in double quotes.",
        ) from None
    except RecursionError:
        raise BadYaml("it is nested too deeply", line=0, hint="Write it flatter.") from None


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """From text to nodes; there is no constructor in it that a tag could reach."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)

    def resolve(self, kind: type[Node], value: Any, implicit: tuple[bool, bool]) -> str:
        """The tag of a node that was written without one."""
        if kind is ScalarNode:
            return _PLAIN if implicit[0] else _STR
        return _TAGS[kind][0]


class _Walk:
    """Turns nodes into values and notes where they stand."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._open: set[int] = set()
        """The nodes above: an alias to one of them has no end."""
        self._values = 0

    def value(self, node: Node, path: Path) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            raise _wrong(node, f"its aliases make more than {MOST_VALUES:,} values", "Use fewer.")
        if id(node) in self._open:
            raise _wrong(node, "an alias stands within what it stands for", "Leave it out.")
        if node.tag not in _TAGS[type(node)]:
            shown = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise _wrong(node, f"the tag {shown} has no meaning here", "Leave the tag out.")
        if isinstance(node, ScalarNode):
            return _scalar(node)
        self._open.add(id(node))
        made = self._dict(node, path) if isinstance(node, MappingNode) else self._list(node, path)
        self._open.remove(id(node))
        return made

    def _list(self, node: Node, path: Path) -> list[Any]:
        made = []
        for position, item in enumerate(node.value):
            self.lines[(*path, position)] = _line(item)
            made.append(self.value(item, (*path, position)))
        return made

    def _dict(self, node: MappingNode, path: Path) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, item in node.value:
            if _is_merge(key_node):
                merged.update(self._merged(item, path))
        # What is written out wins over what is merged, and then stands where it is written out.
        for key_node, item in node.value:
            if _is_merge(key_node):
                continue
            key = _key(key_node)
            if key in first:
                what = f"the key {key!r} stands twice, first on line {first[key]}"
                raise _wrong(key_node, what, "Keep one of the two.")
            first[key] = _line(key_node)
            self.lines[(*path, key)] = first[key]
            own[key] = self.value(item, (*path, key))
        return merged | own

    def _merged(self, node: Node, path: Path) -> dict[str, Any]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        made: dict[str, Any] = {}
        for source in reversed(sources):  # of several, the first wins
            if not isinstance(source, MappingNode):
                raise _wrong(source, "<< merges mappings only", "Write it like this: <<: *name")
            made.update(self.value(source, path))
        return made


def _is_merge(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value == "<<" and node.tag == _PLAIN


def _key(node: Node) -> str:
    key = _scalar(node) if isinstance(node, ScalarNode) else None
    if isinstance(key, str):
        return key
    written = f"{node.value!r} " if isinstance(node, ScalarNode) and node.value else ""
    raise _wrong(node, f"the key {written}is not a text", "Put it in quotes.")


def _scalar(node: ScalarNode) -> Any:
    text = _text(node)
    if node.tag == _STR:
        return text
    for tag, pattern, read in _WORDS:
        if pattern.fullmatch(text) and node.tag in (_PLAIN, tag):
            return _read(node, read, text)
    if node.tag == _PLAIN:
        return text
    raise _wrong(node, f"{text!r} is not what its tag says", "Leave the tag out.")


def _text(node: ScalarNode) -> str:
    text: str = node.value
    if text.isascii():
        return text
    try:
        # JSON writes some characters as two escapes, which YAML takes for two characters.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _wrong(node, "an escape is half a character", "Write the character.") from None


def _read(node: ScalarNode, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError:  # Python refuses to read thousands of digits
        raise _wrong(node, "a number is too long to be read", "Put it in quotes.") from None


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _wrong(node: Node, what: str, hint: str) -> BadYaml:
    return BadYaml(what, line=_line(node), hint=hint)


def _in_words(error: yaml.MarkedYAMLError) -> str:
    if error.context == "expected a single document in the stream":
        return "a second document begins with ---"
    return ", ".join(part for part in (error.context, error.problem) if part)


_YAML_HINT = "Indent with spaces, put a space after each colon, and quote a text with : or # in it."
_NAME = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (_NAME + n for n in ("null", "bool", "int", "float", "str"))
_PLAIN = "a plain word without a tag"
_TAGS: Mapping[type[Node], tuple[str, ...]] = {
    ScalarNode: (_PLAIN, _STR, _NULL, _BOOL, _INT, _FLOAT),
    SequenceNode: (BaseResolver.DEFAULT_SEQUENCE_TAG,),
    MappingNode: (BaseResolver.DEFAULT_MAPPING_TAG,),
}
_WORDS: tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...] = (
    (_NULL, re.compile("null|Null|NULL|~|"), lambda _: None),
    (_BOOL, re.compile("true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (_INT, re.compile("[-+]?[0-9]+"), int),
    (_INT, re.compile("0o[0-7]+"), lambda text: int(text, 8)),
    (_INT, re.compile("0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (_FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (_FLOAT, re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (_FLOAT, re.compile(r"\.(nan|NaN|NAN)"), lambda _: float("nan")),
)
