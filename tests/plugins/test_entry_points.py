"""Plugins of installed distributions are found by name, or the names that exist are shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.entry_points import (
    LOGS_SPECS_GROUP,
    entry_point_names,
    load_entry_point,
)
from dlrover_cli.plugins.faults import PluginFault
from tests.plugins.user_code import UserCode

GROUP = "example.group"
SPECS = """
class Base: pass
class Mine(Base): pass
class Other: pass
"""
DECLARED = """
[example.group]
mine = myspecs:Mine
other = myspecs:Other
gone = myspecs:Gone
broken = not_a_module_anywhere:Cls
modular = myspecs
"""


@pytest.fixture
def base(user: UserCode, monkeypatch: pytest.MonkeyPatch) -> type:
    """A distribution with entry points, installed for the test; returns the plugins' base."""
    user.write("myspecs.py", SPECS)
    user.write("my_plugins-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: my-plugins\n")
    user.write("my_plugins-1.0.dist-info/entry_points.txt", DECLARED)
    monkeypatch.syspath_prepend(user.root)
    import myspecs  # type: ignore[import-not-found]

    assert isinstance(myspecs.Base, type)
    return myspecs.Base


def load(name: str, base: type | None = None) -> object:
    return load_entry_point(GROUP, name, option="--logs-specs", base=base)


def refusal(call: Callable[[], object], reason: PluginFault) -> PluginError:
    with pytest.raises(PluginError) as caught:
        call()
    assert caught.value.reason is reason, caught.value.message
    return caught.value


@pytest.mark.usefixtures("base")
def test_names_are_listed() -> None:
    assert entry_point_names(GROUP) == ("broken", "gone", "mine", "modular", "other")


def test_a_class_is_loaded_by_name(base: type) -> None:
    loaded = load("mine", base)
    assert isinstance(loaded, type)
    assert issubclass(loaded, base)


@pytest.mark.usefixtures("base")
def test_an_unknown_name_is_refused_with_the_near_one() -> None:
    error = refusal(lambda: load("mime"), PluginFault.NO_ENTRY_POINT)
    assert error.message.startswith("--logs-specs=mime: ")
    assert error.hint == "did you mean 'mine'?"


@pytest.mark.usefixtures("base")
def test_an_unknown_name_is_refused_with_all_there_are() -> None:
    error = refusal(lambda: load("qqqq"), PluginFault.NO_ENTRY_POINT)
    assert error.hint == "installed are: broken, gone, mine, modular, other"


def test_with_none_installed_that_is_said() -> None:
    error = refusal(lambda: load("mine"), PluginFault.NO_ENTRY_POINT)
    assert "no installed distribution" in (error.hint or "")


def test_another_class_is_refused(base: type) -> None:
    error = refusal(lambda: load("other", base), PluginFault.WRONG_BASE)
    assert error.message.startswith("--logs-specs=other (myspecs:Other of my-plugins): ")


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    "name,reason",
    [
        ("broken", PluginFault.NO_MODULE),
        ("gone", PluginFault.NO_ATTRIBUTE),
        ("modular", PluginFault.MALFORMED),
    ],
)
def test_a_distribution_that_does_not_keep_its_word_is_named(
    name: str, reason: PluginFault
) -> None:
    assert "of my-plugins" in refusal(lambda: load(name), reason).message


def test_the_path_is_left_as_it_was(base: type, tmp_path: Path) -> None:
    import sys

    before = list(sys.path)
    load("mine", base)
    assert sys.path == before
    assert before[0] == str(tmp_path)


def test_torchs_own_entry_point_is_a_logs_specs_class() -> None:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs

    loaded = load_entry_point(LOGS_SPECS_GROUP, "default", option="--logs-specs", base=LogsSpecs)
    assert loaded is DefaultLogsSpecs
