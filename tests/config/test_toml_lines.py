"""Where a key of a TOML file stands; compared with tomllib on what has to be there."""

import tomllib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dlrover_cli.config.toml_lines import Path, key_lines

DOCUMENT = '''\
# a comment with [brackets] and = signs
title = "a # that is no comment" # and one that is
"quoted.key" = 1
a.b.c = 2

[plain]
numbers = [1, 2,
           3, # three
]
when = 1979-05-27 07:32:00
text = """
[not] = a header
"" still inside \\""" and here
end"""""
raw = \'\'\'
it's = raw\'\'\'

[[rules]]
name = "one"
when = {exit_code = [3, "4-5"], phase = "start-up"}

[[rules]]
  name = 'two'
  [rules.when]
  exit_code = 7

[[ rules . inner ]]
deep = {a = {b = [{c = 1}]}}
'''


@pytest.mark.parametrize(
    "path, line",
    [
        (("title",), 2),
        (("quoted.key",), 3),
        (("a", "b", "c"), 4),
        (("plain",), 6),
        (("plain", "numbers", 1), 7),
        (("plain", "numbers", 2), 8),
        (("plain", "when"), 10),
        (("plain", "text"), 11),
        (("plain", "raw"), 15),
        (("rules",), 18),
        (("rules", 0), 18),
        (("rules", 0, "when", "exit_code", 1), 20),
        (("rules", 0, "when", "phase"), 20),
        (("rules", 1), 22),
        (("rules", 1, "name"), 23),
        (("rules", 1, "when"), 24),
        (("rules", 1, "when", "exit_code"), 25),
        (("rules", 1, "inner", 0), 27),
        (("rules", 1, "inner", 0, "deep", "a", "b", 0, "c"), 28),
    ],
)
def test_every_form_of_key_is_found_on_its_line(path: Path, line: int) -> None:
    assert key_lines(DOCUMENT)[path] == line


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_nothing_is_found_that_is_not_there_and_nothing_is_missed(newline: str) -> None:
    text = DOCUMENT.replace("\n", newline)
    assert set(key_lines(text)) == paths(tomllib.loads(text))


def test_an_empty_document_has_no_keys() -> None:
    assert key_lines("") == key_lines("# only words") == {}


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS = st.integers() | st.booleans() | st.text(max_size=20) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(
    st.dictionaries(KEYS, VALUES, max_size=5), st.lists(st.dictionaries(KEYS, VALUES), max_size=4)
)
def test_whatever_tomllib_reads_is_found_again(top: dict[str, Any], tables: list[Any]) -> None:
    top.pop("rules", None)
    lines = [f"{written(key)} = {written(value)} # {'#'}" for key, value in top.items()]
    for table in tables:
        lines.append("[[rules]]")
        lines += [f"\t{written(key)} = {written(value)}" for key, value in table.items()]
    text = "\n".join(lines)
    found = key_lines(text)
    assert set(found) == paths(tomllib.loads(text))
    assert [found[key,] for key in top] == list(range(1, len(top) + 1))


def written(value: Any) -> str:
    """The value as TOML, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + "".join(f"\\U{ord(each):08X}" for each in value) + '"'
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case dict():
            pairs = (f"{written(key)} = {written(each)}" for key, each in value.items())
            return "{ " + ", ".join(pairs) + " }"
        case _:
            return str(value)


def paths(value: Any, above: Path = ()) -> set[Path]:
    """Every path in a parsed document."""
    if isinstance(value, dict):
        items: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return set()
    found: set[Path] = set()
    for key, inner in items:
        found |= {(*above, key)} | paths(inner, (*above, key))
    return found
