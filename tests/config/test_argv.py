"""How a command line is read before anything else looks at it."""

import pytest

from dlrover_cli.config.argv import normalise_argv
from dlrover_cli.config.declaring import Kind
from dlrover_cli.config.settings import ACTIONS, OPTIONS, SETTINGS
from dlrover_cli.errors import UsageError


def read(line: str) -> list[str]:
    return normalise_argv(line.split())


def refusal(*argv: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        normalise_argv(argv)
    assert caught.value.hint
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    "line, expected",
    [
        ("t.py", "-- t.py"),
        ("--nnodes=2 t.py", "--nnodes=2 -- t.py"),
        ("--nnodes 2 t.py", "--nnodes=2 -- t.py"),
        ("--nproc_per_node 2 t.py", "--nproc-per-node=2 -- t.py"),
        ("--dry_run t.py", "--dry-run -- t.py"),
        ("--stand t.py", "--standalone -- t.py"),
        ("--nn 2 t.py", "--nnodes=2 -- t.py"),
        ("--redirect=3 t.py", "--redirects=3 -- t.py"),
        ("-r3 t.py", "--redirects=3 -- t.py"),
        ("-r=3 t.py", "--redirects=3 -- t.py"),
        ("-r 3 t.py", "--redirects=3 -- t.py"),
        ("-t 0:1,1:2 t.py", "--tee=0:1,1:2 -- t.py"),
        ("-m pkg.mod -m", "--module -- pkg.mod -m"),
        ("-mt3 pkg.mod --x", "--module --tee=3 -- pkg.mod --x"),
        ("-mt 3 pkg.mod", "--module --tee=3 -- pkg.mod"),
        ("--rdzv-endpoint=host:29400 t.py", "--rdzv-endpoint=host:29400 -- t.py"),
        ("--rdzv-conf=a=1,b=2 t.py", "--rdzv-conf=a=1,b=2 -- t.py"),
        ("--role= t.py", "--role= -- t.py"),
    ],
)
def test_an_option_is_understood_in_every_form_torchrun_takes(line: str, expected: str) -> None:
    assert read(line) == expected.split()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.option)
def test_every_spelling_of_an_option_means_the_same(option) -> None:
    value = []
    if option not in ACTIONS and option.kind is not Kind.FLAG:
        value = [option.choices[0] if option.choices else "3"]
    readings = [normalise_argv([name, *value, "t.py"]) for name in option.spellings]
    assert all(reading == readings[0] for reading in readings)
    assert readings[0][0].startswith(option.option)


def test_everything_after_the_script_is_passed_on_as_it_is() -> None:
    rest = ["--help", "-h", "--nnodes", "--n", "--", "-", "", "a b", "--standalone=7", "--version"]
    assert normalise_argv(["--standalone", "t.py", *rest]) == ["--standalone", "--", "t.py", *rest]


def test_a_double_dash_before_the_script_is_dropped_and_one_after_it_is_kept() -> None:
    assert read("-- t.py -- a") == ["--", "t.py", "--", "a"]
    assert read("t.py -- a") == ["--", "t.py", "--", "a"]
    assert read("--standalone -- --odd-name a") == ["--standalone", "--", "--odd-name", "a"]


def test_a_negative_number_is_a_value_and_another_dash_is_not() -> None:
    assert read("--max-restarts -1 t.py") == ["--max-restarts=-1", "--", "t.py"]
    assert read("--monitor-interval -.5 t.py") == ["--monitor-interval=-.5", "--", "t.py"]
    assert refusal("--nnodes", "-1:2", "t.py") == (
        "--nnodes needs a value, but the option -1:2 follows.",
        "If -1:2 is the value, write --nnodes=-1:2",
    )


def test_a_dash_followed_by_a_space_is_a_value() -> None:
    assert normalise_argv(["--role", "-a b", "t.py"]) == ["--role=-a b", "--", "t.py"]


def test_an_option_is_never_taken_for_a_value() -> None:
    assert refusal("--nnodes", "--standalone", "t.py") == (
        "--nnodes needs a value, but the option --standalone follows.",
        "Write --nnodes=N|MIN:MAX",
    )
    assert refusal("--nnodes", "--", "t.py")[0] == "--nnodes needs a value."
    assert refusal("-r") == ("-r needs a value.", "Write -r=STREAMS")


def test_a_flag_takes_no_value() -> None:
    assert refusal("--standalone=1", "t.py") == (
        "--standalone takes no value, but has '1'.",
        "Write --standalone alone.",
    )
    assert refusal("-mpkg.train")[1] == "Leave a space: -m pkg.train"
    assert refusal("-m=pkg.train")[1] == "Leave a space: -m pkg.train"
    assert refusal("--standalone=", "t.py")[0] == "--standalone takes no value, but has ''."


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert refusal("--nprocs-per-node=2", "t.py") == (
        "There is no option --nprocs-per-node.",
        "Did you mean --nproc-per-node?",
    )
    assert refusal("--metric_handler", "a::B", "t.py")[1] == "Did you mean --metrics-handler?"
    assert refusal("-nnodes=2", "t.py")[1] == "Did you mean --nnodes?"
    assert refusal("--nproc-per_node=2", "t.py")[1] == "Did you mean --nproc-per-node?"


def test_an_option_meant_for_the_script_is_told_where_to_go() -> None:
    assert refusal("--lr", "0.1", "t.py") == (
        "There is no option --lr.",
        "The script's own options go after the script; ours are in: dlrover-run --help",
    )


def test_an_ambiguous_prefix_names_the_candidates_once_each() -> None:
    assert refusal("--no", "t.py") == (
        "--no could be --no-python or --node-rank.",
        "Write the one you mean in full.",
    )
    assert "--nproc-per-node, " in refusal("--n", "2", "t.py")[0]


def test_a_prefix_of_two_spellings_of_one_option_is_that_option() -> None:
    assert read("--nproc=2 t.py") == ["--nproc-per-node=2", "--", "t.py"]
    assert read("--v t.py") == ["--virtual-local-rank", "--", "t.py"]


def test_a_prefix_finds_our_options_only_where_torchrun_has_none() -> None:
    assert read("--e=console t.py") == ["--event-log-handler=console", "--", "t.py"]
    assert read("--exi=5 t.py") == ["--exit-barrier-timeout=5", "--", "t.py"]
    assert read("--rdzv-h=a::B t.py") == ["--rdzv-handler=a::B", "--", "t.py"]
    assert read("--ver") == ["--version"]
    assert "--rdzv-handler" not in refusal("--rdzv", "x", "t.py")[0]


def test_no_name_of_ours_is_a_prefix_of_one_of_torchruns() -> None:
    theirs = [name for option in OPTIONS if option.torchrun for name in option.spellings]
    ours = [name for option in OPTIONS if not option.torchrun for name in option.spellings]
    assert [name for name in ours if any(their.startswith(name) for their in theirs)] == []


@pytest.mark.parametrize(
    "line", ["--help", "-h", "--bogus --help", "-mh x", "--standalone -h t.py"]
)
def test_help_is_answered_wherever_it_stands_before_the_script(line: str) -> None:
    assert read(line) == ["--help"]


def test_a_wrong_value_before_help_is_refused_as_argparse_does() -> None:
    assert refusal("--max-restarts=x", "--help") == (
        "--max-restarts takes a whole number, not 'x'.",
        "Write it like this: --max-restarts=3",
    )


def test_a_complaint_names_the_option_as_it_was_typed() -> None:
    assert refusal("--max_restarts", "x", "t.py")[0].startswith("--max_restarts takes")
    assert refusal("--monitor=soon", "t.py") == (
        "--monitor takes a number, not 'soon'.",
        "Write it like this: --monitor=0.5",
    )


def test_a_wrong_choice_is_refused_with_the_choices_and_the_nearest() -> None:
    assert refusal("--start-method=forksrv", "t.py") == (
        "--start-method takes spawn, fork or forkserver, not 'forksrv'.",
        "Did you mean --start-method=forkserver?",
    )


def test_a_value_that_is_overridden_later_must_still_be_right() -> None:
    assert "not 'x'" in refusal("--max-restarts=x", "--max-restarts=1", "t.py")[0]


@pytest.mark.parametrize("argv", [[], ["--standalone"], ["--standalone", "--"], ["--nnodes=2"]])
def test_a_missing_script_is_said_so(argv: list[str]) -> None:
    assert refusal(*argv)[0] == "There is no script to run."


def test_the_declarations_are_complete() -> None:
    for setting in SETTINGS:
        assert setting.about.endswith("."), setting.name
        assert "[" not in setting.about, "Rich would take it for markup in completion"
        assert setting.metavar or setting.kind is Kind.FLAG, setting.name
        assert len(setting.about) <= 90, setting.name
