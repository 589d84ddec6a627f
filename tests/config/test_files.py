"""The config file of the current directory."""

from pathlib import Path

import pytest

from dlrover_cli.config.files import read_config_file
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError


def own(directory: Path, text: str) -> Path:
    (directory / "dlrover.toml").write_text(text)
    return directory


def refusal(directory: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_config_file(directory)
    assert caught.value.hint
    return caught.value


def test_no_file_means_no_settings(tmp_path: Path) -> None:
    assert read_config_file(tmp_path).values == {}


def test_keys_may_have_dashes_or_underscores(tmp_path: Path) -> None:
    found = read_config_file(
        own(tmp_path, 'nproc-per-node = "gpu"\nmax_restarts = 3\njson = true\n')
    )
    assert found.values == {"nproc_per_node": "gpu", "max_restarts": 3, "json_output": True}
    assert found.sources["nproc_per_node"] == Source(SourceKind.FILE, "dlrover.toml:nproc-per-node")


def test_the_table_in_pyproject_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dlrover]\nmax-restarts = 3\n")
    found = read_config_file(tmp_path)
    assert found.values == {"max_restarts": 3}
    assert str(found.sources["max_restarts"]) == "pyproject.toml:tool.dlrover.max-restarts"


def test_a_parent_directory_has_no_say(tmp_path: Path) -> None:
    child = own(tmp_path, 'rdzv_handler = "evil::Handler"\n') / "child"
    child.mkdir()
    assert read_config_file(child).values == {}


def test_a_pyproject_of_other_tools_is_none_of_our_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this is [not TOML")
    assert read_config_file(tmp_path).values == {}
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["dlrover-cli"]\n')
    assert read_config_file(tmp_path).values == {}


def test_two_files_with_settings_are_one_too_many(tmp_path: Path) -> None:
    (own(tmp_path, "max_restarts = 1\n") / "pyproject.toml").write_text("[tool.dlrover]\n")
    assert refusal(tmp_path).message == (
        "Both dlrover.toml and [tool.dlrover] of pyproject.toml hold settings."
    )


def test_an_unknown_key_is_refused_with_file_key_and_suggestion(tmp_path: Path) -> None:
    error = refusal(own(tmp_path, "# ours\n\nmax_restart = 3\n"))
    assert error.message == "dlrover.toml:3: max_restart is not a setting."
    assert error.hint == "Did you mean max_restarts?"


def test_an_unknown_key_in_pyproject_is_named_in_full(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dlrover]\nzzz = 3\n")
    error = refusal(tmp_path)
    assert error.message == "pyproject.toml:2: tool.dlrover.zzz is not a setting."
    assert error.hint == "All settings: dlrover-run --help"


@pytest.mark.parametrize(
    "line, message, hint",
    [
        ('max_restarts = "3"', "takes a whole number, not the text '3'", "max_restarts = 3"),
        ("max_restarts = true", "takes a whole number, not true", "max_restarts = 3"),
        ("max_restarts = 1.5", "takes a whole number, not the number 1.5", "max_restarts = 3"),
        ('standalone = "yes"', "takes true or false, not the text 'yes'", "standalone = true"),
        ("standalone = 1", "takes true or false, not the number 1", "standalone = true"),
        ("role = 7", "takes a text, not the number 7", 'role = "..."'),
        ("rdzv_conf = {a = 1}", "takes a text, not a table", 'rdzv_conf = "..."'),
        ("nnodes = [1, 4]", "takes a text, not a list", 'nnodes = "..."'),
        ("nnodes = true", "takes a text, not true", 'nnodes = "..."'),
        ("log_dir = 2020-01-01", "takes a text, not a date or time", 'log_dir = "..."'),
        ("monitor_interval = '1'", "takes a number, not the text '1'", "monitor_interval = 0.5"),
        ("metrics_handler = [1]", "takes a list of texts, not a list", 'metrics_handler = ["...'),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_an_example(
    tmp_path: Path, line: str, message: str, hint: str
) -> None:
    error = refusal(own(tmp_path, line))
    assert error.message == f"dlrover.toml:1: {line.split()[0]} {message}."
    assert error.hint is not None
    assert error.hint.startswith(f"Write it like this: {hint}")


def test_a_wrong_choice_is_refused(tmp_path: Path) -> None:
    error = refusal(own(tmp_path, 'start_method = "spwan"\n'))
    assert (
        error.message
        == "dlrover.toml:1: start_method takes spawn, fork or forkserver, not 'spwan'."
    )
    assert error.hint == 'Did you mean start_method = "spawn"?'


def test_numbers_may_be_plain_where_a_text_is_often_a_number(tmp_path: Path) -> None:
    found = read_config_file(
        own(tmp_path, "nnodes = 2\nnproc_per_node = 8\ntee = 3\nrdzv_id = 7\n")
    )
    assert found.values == {"nnodes": "2", "nproc_per_node": "8", "tee": "3", "rdzv_id": "7"}


def test_lists_may_be_lists_or_texts_with_commas(tmp_path: Path) -> None:
    found = read_config_file(
        own(
            tmp_path,
            'metrics_handler = ["a::A", "b::B"]\n'
            'duplicate_stdout_filters = ["a,b"]\nduplicate_stderr_filters = "a,,b,c"\n',
        )
    )
    assert found.values == {
        "metrics_handler": ("a::A", "b::B"),
        "duplicate_stdout_filters": ("a,b",),
        "duplicate_stderr_filters": ("a,b", "c"),
    }


def test_a_whole_number_does_where_a_number_is_wanted(tmp_path: Path) -> None:
    found = read_config_file(own(tmp_path, "exit_barrier_timeout = 5\n"))
    assert found.values == {"exit_barrier_timeout": 5.0}


def test_the_failover_table_is_kept_as_it_stands(tmp_path: Path) -> None:
    found = read_config_file(own(tmp_path, '[failover]\nrules = [{when = "oom"}]\n'))
    assert found.failover_table == {"rules": [{"when": "oom"}]}
    assert str(found.sources["failover_table"]) == "dlrover.toml:failover"


def test_a_failover_key_that_is_no_table_is_refused(tmp_path: Path) -> None:
    error = refusal(own(tmp_path, "failover = 3\n"))
    assert error.message == "dlrover.toml:1: failover must be a table."
    assert error.hint == "Start it with a line [failover]."


def test_the_same_key_in_both_spellings_is_refused(tmp_path: Path) -> None:
    error = refusal(own(tmp_path, "max_restarts = 1\nmax-restarts = 2\n"))
    assert "given twice" in error.message


def test_broken_toml_is_a_sentence_with_the_line(tmp_path: Path) -> None:
    error = refusal(own(tmp_path, "max_restarts = 3\nnnodes = \n"))
    assert error.message.startswith("dlrover.toml is not valid TOML: ")
    assert "line 2" in error.message


def test_a_file_that_is_not_text_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "dlrover.toml").write_bytes(b"role = '\xff'\n")
    assert refusal(tmp_path).message == "dlrover.toml is not UTF-8 text: byte 8 cannot be read."


def test_a_directory_of_that_name_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "dlrover.toml").mkdir()
    assert refusal(tmp_path).message == "dlrover.toml cannot be read: Is a directory."


def test_a_table_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ndlrover = 3\n")
    assert refusal(tmp_path).message == "tool.dlrover in pyproject.toml must be a table."
