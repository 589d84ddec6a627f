"""A constructor gets of `key=value` settings what it has parameters for."""

from typing import Any

import pytest

from dlrover_cli.plugins.key_values import TakenKeys


class Named:
    def __init__(self, url: str, *, retries: str = "3") -> None: ...


class Whole:
    def __init__(self, cfg: dict[str, str]) -> None: ...


class OptionalWhole:
    def __init__(self, params: dict[str, str] | None = None, url: str = "") -> None: ...


class Anything:
    def __init__(self, **kwargs: str) -> None: ...


class Nothing:
    pass


SETTINGS = {"url": "http://x", "colour": "red"}


@pytest.mark.parametrize(
    "target,settings,arguments",
    [
        (Named, SETTINGS, {"url": "http://x"}),
        (Whole, SETTINGS, {"cfg": SETTINGS}),
        (Whole, {}, {"cfg": {}}),
        (Whole, {"cfg": "literal"}, {"cfg": "literal"}),
        (OptionalWhole, SETTINGS, {"params": SETTINGS, "url": "http://x"}),
        (OptionalWhole, {}, {}),
        (Anything, SETTINGS, SETTINGS),
        (Nothing, SETTINGS, {}),
    ],
)
def test_arguments(target: type, settings: dict[str, str], arguments: dict[str, Any]) -> None:
    assert TakenKeys(target).arguments(settings) == arguments


@pytest.mark.parametrize(
    "target,taken", [(Named, False), (Whole, True), (Anything, True), (Nothing, False)]
)
def test_a_key_without_a_parameter_is_taken_only_as_part_of_the_whole(
    target: type, taken: bool
) -> None:
    assert TakenKeys(target).takes("colour") is taken


def test_what_is_lacking_is_named() -> None:
    assert TakenKeys(Named).lacking({}) == ["url"]
    assert TakenKeys(Named).lacking({"url": "x"}) == []


def test_the_parameters_are_listed_for_a_message() -> None:
    assert str(TakenKeys(Named)) == "url, retries"
    assert str(TakenKeys(Nothing)) == "none"
