"""What the texts of settings stand for."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from dlrover_cli.config.derive import (
    check_log_prefix,
    check_settings,
    parse_key_values,
    parse_local_ranks_filter,
    parse_nnodes,
    parse_nproc_per_node,
    parse_ranks_filter,
    parse_rdzv_conf,
    parse_signals,
    parse_std,
)
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError

DEFAULTS = LaunchSettings(training_script="t.py")


def refusal(call, *args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    assert caught.value.hint
    return caught.value.message


def test_nodes_are_a_number_or_a_range() -> None:
    assert parse_nnodes("4") == (4, 4)
    assert parse_nnodes("1:4") == (1, 4)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1:2:3", "--nnodes takes a number or MIN:MAX, not '1:2:3'."),
        ("two", "--nnodes takes a number or MIN:MAX, not 'two'."),
        ("", "--nnodes takes a number or MIN:MAX, not ''."),
        ("0", "--nnodes needs at least one node, not 0."),
        ("4:1", "--nnodes has its minimum, 4, above its maximum, 1."),
    ],
)
def test_nodes_that_make_no_sense_are_refused(text: str, message: str) -> None:
    assert refusal(parse_nnodes, text) == message


def test_a_complaint_names_where_the_value_came_from() -> None:
    source = Source(SourceKind.FILE, "dlrover.toml:nnodes")
    with pytest.raises(ConfigError) as caught:
        parse_nnodes("x", source)
    assert caught.value.message == "nnodes in dlrover.toml takes a number or MIN:MAX, not 'x'."
    assert caught.value.hint == 'Write nnodes = 2 or, for an elastic job, nnodes = "1:4"'


def test_workers_are_a_number_or_a_kind_of_device() -> None:
    assert parse_nproc_per_node("8") == 8
    assert parse_nproc_per_node("auto") == "auto"
    assert parse_nproc_per_node("npu") == "npu"


@pytest.mark.parametrize("text", ["0", "-1", "2x", "1.5", ""])
def test_workers_that_make_no_sense_are_refused(text: str) -> None:
    assert refusal(parse_nproc_per_node, text).startswith("--nproc-per-node ")


def test_streams_are_one_number_or_one_for_each_rank_beyond_nine_too() -> None:
    assert parse_std("3") == 3
    assert parse_std("0:1,10:3") == {0: 1, 10: 3}


@pytest.mark.parametrize("text", ["4", "", "0:4", "0:1,", "0-1", "0:1, 1:2", "=3", "3\n"])
def test_streams_that_make_no_sense_are_refused(text: str) -> None:
    assert "takes 0, 1 (stdout)" in refusal(parse_std, text, Source(SourceKind.FLAG, "--tee"))


def test_key_values_are_a_dict_of_texts() -> None:
    assert parse_rdzv_conf("timeout=30, a=b=c") == {"timeout": "30", "a": "b=c"}
    assert parse_key_values("") == {}
    assert parse_rdzv_conf("  ") == {}


def test_key_values_need_keys_and_values() -> None:
    assert refusal(parse_rdzv_conf, "a") == "--rdzv-conf has no value for 'a'."
    assert refusal(parse_key_values, "a=1,b=") == "--metrics-cfg has no value for 'b'."
    assert refusal(parse_key_values, "=1") == "--metrics-cfg has no name before '=1'."


def test_a_rank_filter_is_a_set_and_nothing_means_all() -> None:
    assert parse_local_ranks_filter("0,2") == {0, 2}
    assert parse_local_ranks_filter("") is None
    assert refusal(parse_local_ranks_filter, "0,x") == (
        "--local-ranks-filter takes numbers with commas between, not '0,x'."
    )


@pytest.mark.parametrize(
    "text, ranks",
    [("", None), ("0", {0}), ("0,8-10", {0, 8, 9, 10}), ("3-3, 1", {1, 3})],
)
def test_a_filter_of_global_ranks_has_ranges(text: str, ranks: set[int] | None) -> None:
    assert parse_ranks_filter(text) == ranks


@pytest.mark.parametrize("text", ["x", "1,", "4-2", "-1", "1-", "0-999999999"])
def test_a_filter_of_global_ranks_that_is_wrong_is_refused(text: str) -> None:
    assert refusal(parse_ranks_filter, text) == (
        f"--ranks-filter takes numbers and ranges with commas between, not {text!r}."
    )


def test_a_prefix_has_only_names_that_are_known() -> None:
    check_log_prefix(None)
    check_log_prefix("${host}.${node_rank} $rank/${local_rank} #${attempt} costs $$5 ")
    assert refusal(check_log_prefix, "${ranks} ") == "--log-prefix has no ${ranks}."
    assert refusal(check_log_prefix, "5 $ ") == "--log-prefix has a $ that names nothing: '5 $ '."


def test_signals_are_known_by_name() -> None:
    assert parse_signals("SIGTERM, SIGUSR1,") == (signal.SIGTERM, signal.SIGUSR1)
    assert parse_signals("") == ()


def test_an_unknown_signal_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_signals("SIGTREM")
    assert (
        caught.value.message == "--signals-to-handle names 'SIGTREM', which is not a signal here."
    )
    assert caught.value.hint == "Did you mean SIGTERM?"
    assert "no process can handle" in refusal(parse_signals, "SIGKILL")


def test_the_defaults_are_in_order() -> None:
    check_settings(DEFAULTS)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"max_restarts": -1}, "--max-restarts takes 0 or more, not -1."),
        ({"monitor_interval": float("nan")}, "--monitor-interval takes 0 or more, not nan."),
        ({"shutdown_timeout": -1}, "--shutdown-timeout takes 0 or more, not -1."),
        ({"exit_barrier_timeout": -1.0}, "--exit-barrier-timeout takes 0 or more, not -1.0."),
        ({"node_rank": -1}, "--node-rank takes 0 or more, not -1."),
        ({"master_port": 70000}, "--master-port takes 0 to 65535, not 70000."),
        ({"nproc_per_node": "0"}, "--nproc-per-node needs at least one worker, not 0."),
        ({"tee": "9"}, "--tee takes 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:0-3,..., not '9'."),
        (
            {"no_python": True, "module": True},
            "--no-python and --module contradict each other: a module is run by Python.",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(change: dict, message: str) -> None:
    assert refusal(check_settings, replace(DEFAULTS, **change)) == message


def test_run_path_wins_over_no_python_as_with_torchrun() -> None:
    check_settings(replace(DEFAULTS, no_python=True, module=True, run_path=True))


def test_json_on_the_command_line_needs_a_dry_run() -> None:
    asked = replace(
        DEFAULTS, json_output=True, sources={"json_output": Source(SourceKind.FLAG, "--json")}
    )
    assert refusal(check_settings, asked) == "--json has nothing to print without --dry-run."
    check_settings(replace(asked, dry_run=True))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"debug_rank": 0, "no_python": True}, "Python scripts"),
        ({"pdb": True, "run_path": True}, "Python scripts"),
        ({"pdb": True, "platform": "ray"}, "those of ray are elsewhere"),
        ({"debug_rank": 4, "nproc_per_node": "2", "nnodes": "2"}, "ranks go from 0 to 3"),
        ({"debug_rank": -1}, "takes 0 or more"),
        ({"debugger": "debugpy"}, "says nothing without --debug-rank"),
    ],
)
def test_a_debugger_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(replace(DEFAULTS, **changes))
    assert message in caught.value.message


def test_a_rank_that_may_yet_be_there_can_be_looked_into() -> None:
    check_settings(replace(DEFAULTS, debug_rank=7, nnodes="1:4", nproc_per_node="2"))
    check_settings(replace(DEFAULTS, debug_rank=7, nproc_per_node="auto"))
