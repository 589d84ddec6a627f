"""YAML as job files have it: words as they look, lines of keys, nothing that runs or explodes."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dlrover_cli.config.yaml_tree import BadYaml, read_yaml


def value(text: str) -> Any:
    return read_yaml(text)[0]


def refusal(text: str) -> BadYaml:
    with pytest.raises(BadYaml) as caught:
        read_yaml(text)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "written, meant",
    [
        ("1:4", "1:4"),
        ("yes", "yes"),
        ("off", "off"),
        ("2030-01-31", "2030-01-31"),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("=", "="),
        ("'3'", "3"),
        ('"true"', "true"),
        ("!!str 3", "3"),
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("3", 3),
        ("-3", -3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("!!int '3'", 3),
        ("1e-3", 0.001),
        ("2.", 2.0),
        ("-.5", -0.5),
        ("!!float 3", 3.0),
        ("-.inf", float("-inf")),
        ("[]", []),
        ("{}", {}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_a_plain_word_is_what_it_looks_like(written: str, meant: object) -> None:
    found = value(f"key: {written}")["key"]
    assert found == meant
    assert type(found) is type(meant)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=15
)
# PyYAML writes as YAML 1.1, where these are texts and need no quotes.
NUMBER_SINCE_1_2 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+|0o[0-7]+")


def is_read_otherwise(written: Any) -> bool:
    match written:
        case str():
            return NUMBER_SINCE_1_2.fullmatch(written) is not None
        case list():
            return any(map(is_read_otherwise, written))
        case dict():
            return any(is_read_otherwise(each) for item in written.items() for each in item)
        case _:
            return False


@given(VALUES)
def test_what_a_json_writer_writes_is_read_back(written: Any) -> None:
    assume("Infinity" not in repr(written))  # as a text, which the next line would change
    assert value(json.dumps(written).replace("Infinity", ".inf")) == written


@example("0E0").xfail(raises=AssertionError)
@given(VALUES.filter(lambda written: not is_read_otherwise(written)))
def test_what_a_yaml_writer_writes_is_read_back(written: Any) -> None:
    assert value(yaml.safe_dump(written)) == written


def test_keys_and_items_have_their_lines() -> None:
    text = "a:\n  b: [1,\n    2]\n  'c d':\n  - x\n  - e: 1\n"
    assert read_yaml(text)[1] == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 2,
        ("a", "b", 1): 3,
        ("a", "c d"): 4,
        ("a", "c d", 0): 5,
        ("a", "c d", 1): 6,
        ("a", "c d", 1, "e"): 6,
    }


def test_what_is_merged_gives_way_and_keeps_its_lines() -> None:
    text = "a: &a\n  x: 1\n  y: 2\nb:\n  y: 3\n  <<: *a\nc:\n  <<: [{x: 7}, *a]\n"
    found, lines = read_yaml(text)
    assert found["b"] == {"x": 1, "y": 3}
    assert found["c"] == {"x": 7, "y": 2}
    assert (lines["b", "x"], lines["b", "y"], lines["c", "y"]) == (2, 5, 3)


def test_an_alias_repeats_a_value() -> None:
    assert value("a: &x [1, {y: 2}]\nb: *x") == {"a": [1, {"y": 2}], "b": [1, {"y": 2}]}


def test_a_quoted_merge_sign_is_a_key() -> None:
    assert value("'<<': 1") == {"<<": 1}


@pytest.mark.parametrize(
    "text, line, sentence",
    [
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' stands twice, first on line 1"),
        ("a: 1\n'a': 3", 2, "the key 'a' stands twice"),
        ("a:\n  true: 3", 2, "the key 'true' is not a text"),
        ("? [a, b]\n: 1", 1, "the key is not a text"),
        ("?\n: 1", 1, "the key is not a text"),
        ("a: !!python/object/apply:os.system [id]", 1, "!!python/object/apply:os.system has no"),
        ("a: !!binary aGk=", 1, "the tag !!binary has no meaning here"),
        ("a: !!set {b}", 1, "the tag !!set has no meaning here"),
        ("a: !local b", 1, "the tag !local has no meaning here"),
        ("a:\n- !!int x", 2, "'x' is not what its tag says"),
        ("a: 1\nb: [1, 2\nc: 3", 3, "not valid YAML"),
        ("a: 1\nb: [1, 2\n\n", 2, "not valid YAML"),
        ("a: &x\n  b: *x", 1, "an alias stands within what it stands for"),
        ("a: 1\n<<: 3", 2, "<< merges mappings only"),
        ("a: 1\nb: " + "9" * 5000, 2, "a number is too long"),
        ("a: 1\nb: \x00", 2, r"the character '\x00'"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins"),
        ('a: 1\nb: "\\ud800"\n', 2, "an escape is half a character"),
        ("[" * 3_000, 0, "nested too deeply"),
    ],
)
def test_what_is_refused_is_refused_with_its_line(text: str, line: int, sentence: str) -> None:
    error = refusal(text)
    assert sentence in str(error)
    assert error.line == line


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "its aliases make more than 100,000 values" in str(refusal("\n".join(lines)))


@given(st.text(st.sampled_from("abc:-[]{}&*!|>'\"#%@`,? \n\t0123.~<=")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_yaml(text)
    except BadYaml as error:
        if not error.hint:
            raise
