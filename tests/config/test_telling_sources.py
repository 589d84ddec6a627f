"""A complaint about a value names the flag, the variable or the line of the file it stands in."""

from pathlib import Path

import pytest

from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.telling_sources import telling_sources
from dlrover_cli.errors import ConfigError, PluginError, UsageError


@pytest.fixture
def settings(tmp_path: Path) -> LaunchSettings:
    """The same two settings in a file, one of them in the environment as well."""
    (tmp_path / "dlrover.toml").write_text('# ours\nrdzv_backend = "x"\nrdzv_handler = "a::B"\n')
    return resolve_settings({"training_script": "t.py"}, {"PET_RDZV_BACKEND": "y"}, tmp_path)


def told(settings: LaunchSettings, message: str) -> str:
    with pytest.raises(ConfigError) as caught, telling_sources(settings):
        raise ConfigError(message, setting="", hint="so")
    assert str(caught.value) == caught.value.message
    assert caught.value.hint == "so"
    return caught.value.message


def test_a_line_of_a_file_in_either_spelling_of_the_option(settings: LaunchSettings) -> None:
    for option in ("--rdzv_handler", "--rdzv-handler"):
        assert told(settings, f"{option}=a::B: no such module") == (
            "dlrover.toml:3: rdzv_handler=a::B: no such module"
        )


def test_a_variable(settings: LaunchSettings) -> None:
    assert told(settings, "--rdzv-backend: no such backend") == "PET_RDZV_BACKEND: no such backend"


@pytest.mark.parametrize(
    "message",
    [
        "--max-restarts=x: no number",  # not in the file: it is the option that is meant
        "--rdzv-backends=x: no such backend",
        "the file is gone: --rdzv-backend",
    ],
)
def test_all_else_stays_as_it_is(settings: LaunchSettings, message: str) -> None:
    assert told(settings, message) == message


def test_a_flag_stays_a_flag(tmp_path: Path) -> None:
    (tmp_path / "dlrover.toml").write_text('rdzv_backend = "x"\n')
    flags = {"training_script": "t.py", "rdzv_backend": "y"}
    settings = resolve_settings(flags, {}, tmp_path)
    assert told(settings, "--rdzv-backend=y: no") == "--rdzv-backend=y: no"


def test_the_error_is_of_its_kind_still(settings: LaunchSettings) -> None:
    with pytest.raises(UsageError) as caught, telling_sources(settings):
        raise PluginError("--rdzv_handler=a::B: no", reference="a::B", reason="no-module")
    assert isinstance(caught.value, PluginError)
    assert caught.value.reference == "a::B"
