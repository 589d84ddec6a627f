"""Where a setting's value comes from, and that it can be told afterwards."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import DEFAULT, Source, SourceKind
from dlrover_cli.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


def resolve(
    here: Path, environ: Mapping[str, str] | None = None, **flags: object
) -> LaunchSettings:
    return resolve_settings({"training_script": "t.py", **flags}, environ or {}, here)


def refusal(here: Path, environ: Mapping[str, str] | None = None, **flags: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(here, environ, **flags)
    return caught.value


def test_without_anything_every_setting_has_its_default(here: Path) -> None:
    settings = resolve(here)
    for setting in SETTINGS:
        assert getattr(settings, setting.name) == setting.default
        assert settings.source_of(setting.name) == DEFAULT
    assert settings.training_script == "t.py"
    assert settings.training_script_args == ()
    assert settings.failover_table == {}


def test_flag_beats_dlrover_variable_beats_pet_variable_beats_file_beats_default(
    here: Path,
) -> None:
    (here / "dlrover.toml").write_text('nnodes = "5"\n')
    environ = {"DLROVER_NNODES": "3", "PET_NNODES": "4"}

    def found(settings: LaunchSettings) -> tuple[str, Source]:
        return settings.nnodes, settings.source_of("nnodes")

    assert found(resolve(here, environ, nnodes="2")) == ("2", Source(SourceKind.FLAG, "--nnodes"))
    assert found(resolve(here, environ)) == ("3", Source(SourceKind.ENV, "DLROVER_NNODES"))
    del environ["DLROVER_NNODES"]
    assert found(resolve(here, environ)) == ("4", Source(SourceKind.ENV, "PET_NNODES"))
    assert found(resolve(here)) == ("5", Source(SourceKind.FILE, "dlrover.toml:nnodes"))
    (here / "dlrover.toml").unlink()
    assert found(resolve(here)) == ("1:1", DEFAULT)


def test_the_operators_master_address_is_not_taken_for_ours(here: Path) -> None:
    environ = {"DLROVER_MASTER_ADDR": "master:50001"}
    assert resolve(here, environ).master_addr == "127.0.0.1"
    assert resolve(here, environ | {"PET_MASTER_ADDR": "h"}).master_addr == "h"


def test_dlrovers_own_variable_names_the_failover_extension(here: Path) -> None:
    environ = {"DLROVER_EXTENSION_DYNAMIC_FAILOVER": "a::Theirs"}
    assert resolve(here, environ).dynamic_failover_extension == "a::Theirs"
    environ["DLROVER_DYNAMIC_FAILOVER_EXTENSION"] = "a::Ours"
    assert resolve(here, environ).dynamic_failover_extension == "a::Ours"


def test_variables_that_torchrun_does_not_have_are_not_read(here: Path) -> None:
    environ = {"PET_NUMA_BINDING": "bad", "PET_LOGS_SPECS": "x", "PET_RDZV_HANDLER": "a::B"}
    settings = resolve(here, environ)
    assert (settings.numa_binding, settings.logs_specs, settings.rdzv_handler) == (None, None, None)
    assert resolve(here, {"DLROVER_NUMA_BINDING": "node"}).numa_binding == "node"


@pytest.mark.parametrize("text, meant", [("1", True), ("0", False), ("2", True), (" 1 ", True)])
def test_a_flag_variable_is_a_number_as_with_torchrun(here: Path, text: str, meant: bool) -> None:
    assert resolve(here, {"PET_STANDALONE": text}).standalone is meant


@pytest.mark.parametrize("text", ["true", "", "yes"])
def test_a_bad_flag_variable_is_refused_with_a_sentence(here: Path, text: str) -> None:
    error = refusal(here, {"PET_STANDALONE": text})
    assert error.message == f"PET_STANDALONE takes 1 or 0, not {text!r}."
    assert error.hint == "Write it like this: PET_STANDALONE=1"


def test_a_flag_on_the_command_line_makes_its_bad_variable_irrelevant(here: Path) -> None:
    assert resolve(here, {"PET_STANDALONE": "true"}, standalone=True).standalone is True


def test_a_bad_choice_in_a_variable_is_refused(here: Path) -> None:
    error = refusal(here, {"PET_START_METHOD": "frok"})
    assert error.message == "PET_START_METHOD takes spawn, fork or forkserver, not 'frok'."
    assert error.hint == "Did you mean PET_START_METHOD=fork?"


def test_a_bad_number_in_a_variable_is_refused(here: Path) -> None:
    assert refusal(here, {"PET_MAX_RESTARTS": "many"}).message == (
        "PET_MAX_RESTARTS takes a whole number, not 'many'."
    )
    assert refusal(here, {"DLROVER_MONITOR_INTERVAL": ""}).setting == "monitor_interval"


def test_a_filter_list_splits_at_single_commas_only(here: Path) -> None:
    settings = resolve(
        here, {"PET_DUPLICATE_STDERR_FILTERS": "x"}, duplicate_stdout_filters="a,,b,c"
    )
    assert settings.duplicate_stdout_filters == ("a,b", "c")
    assert settings.duplicate_stderr_filters == ("x",)


def test_metrics_handlers_add_up_on_the_command_line_and_replace_weaker_sources(here: Path) -> None:
    environ = {"DLROVER_METRICS_HANDLER": "e::A, e::B"}
    assert resolve(here, environ).metrics_handler == ("e::A", "e::B")
    settings = resolve(here, environ, metrics_handler=["f::A", "f::B"])
    assert settings.metrics_handler == ("f::A", "f::B")
    assert resolve(here, environ, metrics_handler=[""]).metrics_handler == ()


def test_script_arguments_are_kept_as_they_are(here: Path) -> None:
    settings = resolve(here, training_script_args=["--", "-h", ""])
    assert settings.training_script_args == ("--", "-h", "")


def test_a_value_can_name_its_origin_even_if_it_is_a_default(here: Path) -> None:
    settings = resolve(here, {"PET_TEE": "3"})
    assert settings.origin("tee").subject == "PET_TEE"
    assert settings.origin("redirects").subject == "--redirects"
