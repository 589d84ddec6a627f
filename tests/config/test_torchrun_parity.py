"""Our reading of command lines and PET_ variables against torch's own parser.

The differences that docs/reference/torchrun-compat.md lists are modelled one by one below
`expected_outcome`; all else must be the same: equal values, or both refuse, or both show help.
"""

import contextlib
import io
import os
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.distributed.run import get_args_parser

from dlrover_cli.cli.typer_adapter import read_flags
from dlrover_cli.config.argv import normalise_argv
from dlrover_cli.config.declaring import Kind
from dlrover_cli.config.derive import parse_nproc_per_node, parse_std
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import OPTIONS, SETTING, SETTINGS, LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.errors import UsageError

NOWHERE = Path("/nonexistent")
POSITIONALS = {"training_script", "training_script_args"}
OURS = {setting.name for setting in SETTINGS if not setting.torchrun}


@pytest.fixture(scope="module")
def parser():
    with mock.patch.dict(os.environ, clear=True):
        return get_args_parser()


@pytest.fixture(scope="module")
def actions(parser):
    return {action.dest: action for action in parser._actions if action.dest not in POSITIONALS}


def test_we_have_every_option_of_torchrun_and_call_no_other_torchruns(actions) -> None:
    theirs = {name for action in actions.values() for name in action.option_strings}
    ours = {name for option in OPTIONS if option.torchrun for name in option.spellings}
    assert ours == theirs


def test_every_option_has_torchruns_default(actions) -> None:
    for dest, action in actions.items():
        if dest == "help":
            continue
        default = SETTING[dest].default
        assert (list(default) if isinstance(default, tuple) else default) == action.default, dest


def test_every_option_has_torchruns_type_and_choices(actions) -> None:
    kinds = {str: Kind.TEXT, int: Kind.WHOLE, float: Kind.NUMBER}
    for dest, action in actions.items():
        if dest == "help":
            continue
        setting = SETTING[dest]
        assert setting.choices == tuple(action.choices or ()), dest
        if action.nargs == 0:
            assert setting.kind is Kind.FLAG, dest
        else:
            assert setting.kind is kinds.get(action.type, Kind.TEXTS), dest


def test_the_variables_that_torchrun_reads_are_the_ones_we_read(actions) -> None:
    # 7 is nobody's default, and a number is a good value for a flag.
    with mock.patch.dict(os.environ, {f"PET_{dest.upper()}": "7" for dest in actions}, clear=True):
        changed = {
            action.dest
            for action in get_args_parser()._actions
            if action.dest in actions and action.default != actions[action.dest].default
        }
    ours = {setting.name for setting in SETTINGS if f"PET_{setting.name.upper()}" in setting.env}
    assert ours == changed


def test_every_prefix_of_every_torchrun_option_means_what_it_means_to_torchrun(parser) -> None:
    names = [name for option in OPTIONS if option.torchrun for name in option.spellings]
    prefixes = {name[:end] for name in names if name[:2] == "--" for end in range(3, len(name) + 1)}
    for prefix in sorted(prefixes):
        found = {
            parser._option_string_actions[name].dest for name in names if name.startswith(prefix)
        }
        exact = parser._option_string_actions.get(prefix)
        wanted = {exact.dest} if exact else found
        try:
            token = normalise_argv([prefix, *_value_for(wanted), "t.py"])[0]
        except UsageError:
            assert len(wanted) > 1, prefix
        else:
            assert wanted == {token[2:].partition("=")[0].replace("-", "_")}, prefix


def _value_for(dests: set[str]) -> list[str]:
    setting = SETTING.get(next(iter(dests)))
    if len(dests) > 1 or setting is None or setting.kind is Kind.FLAG:
        return []
    return [setting.choices[0] if setting.choices else "1"]


# The corpus


@dataclass(frozen=True)
class Refused:
    why: str


@dataclass(frozen=True)
class Crashed:
    why: str


class Help:
    pass


Outcome = Namespace | LaunchSettings | Refused | Crashed | type[Help]


def torch_outcome(argv: list[str], environ: dict[str, str]) -> Outcome:
    stderr = io.StringIO()
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        contextlib.redirect_stderr(stderr),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            return get_args_parser().parse_args(list(argv))
        except SystemExit as error:
            return Help if error.code == 0 else Refused(stderr.getvalue())
        except ValueError as error:
            return Crashed(str(error))


def our_outcome(argv: list[str], environ: dict[str, str]) -> Outcome:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            flags = read_flags(normalise_argv(argv), environ)
        return resolve_settings(flags, environ, NOWHERE)
    except SystemExit as error:
        return Help if error.code == 0 else Crashed(f"exit code {error.code}")
    except UsageError as error:
        return Refused(error.message) if error.hint else Crashed("no hint")


def expected_outcome(argv: list[str], environ: dict[str, str], ours: Outcome) -> Outcome:
    """What torch makes of it, but for the listed differences; `ours` says where the script is."""
    if any(word.endswith("=--") for word in argv):
        return _with_double_dash_as_value(argv, environ, ours)
    theirs = torch_outcome(argv, environ)
    if isinstance(theirs, Crashed):
        return _with_bad_flag_variable(argv, environ, ours)
    if isinstance(theirs, Refused) and not isinstance(ours, Refused):
        return _with_ambiguous_prefix(argv, environ, ours, theirs)
    if isinstance(theirs, Namespace):
        if theirs.start_method not in SETTING["start_method"].choices:
            return Refused("difference: PET_START_METHOD is checked")
        return _with_double_dash_after_script(argv, theirs, ours)
    return theirs


def _with_bad_flag_variable(argv: list[str], environ: dict[str, str], ours: Outcome) -> Outcome:
    """Difference: torch crashes on PET_STANDALONE=true; we refuse, unless --standalone is given."""
    bad = [
        setting
        for setting in SETTINGS
        if setting.kind is Kind.FLAG
        and setting.torchrun
        and not environ.get(f"PET_{setting.name.upper()}", "0").strip().isdigit()
    ]
    assert bad, "torch crashed on something else"
    variables = {variable for setting in bad for variable in setting.env}
    rest = {name: value for name, value in environ.items() if name not in variables}
    theirs = expected_outcome(argv, rest, ours)
    if isinstance(theirs, Namespace) and isinstance(ours, LaunchSettings):
        for setting in bad:
            assert ours.source_of(setting.name).kind is SourceKind.FLAG
        return theirs
    if isinstance(theirs, Namespace):
        return Refused("difference: a bad flag variable is a sentence")
    return theirs


def _with_ambiguous_prefix(
    argv: list[str], environ: dict[str, str], ours: Outcome, theirs: Refused
) -> Outcome:
    """Differences: argparse 3.11 refuses a prefix of two spellings of one option, and looks for
    ambiguous prefixes among the script's arguments and behind --help."""
    found = re.search(r"ambiguous option: (.*) could match (.*)\n", theirs.why, re.DOTALL)
    if found is None:
        return theirs
    word, names = found.group(1), found.group(2).split(", ")
    if ours is Help:
        at = len(argv) - 1 - argv[::-1].index(word)
        return expected_outcome(argv[:at], environ, ours)
    assert isinstance(ours, LaunchSettings)
    script_at = len(argv) - len(ours.training_script_args) - 1
    if word in argv[:script_at]:
        meant = {name.replace("_", "-") for name in names}
        if len(meant) > 1:
            return theirs
        at, instead = argv.index(word), word.replace(word.partition("=")[0], names[0], 1)
    else:
        at, instead = argv.index(word, script_at), f"stand-in {word}"
    changed = [*argv[:at], instead, *argv[at + 1 :]]
    outcome = expected_outcome(changed, environ, ours)
    if isinstance(outcome, Namespace) and at > script_at:
        outcome.training_script_args = [
            each.removeprefix("stand-in ") for each in outcome.training_script_args
        ]
    return outcome


def _with_double_dash_after_script(argv: list[str], theirs: Namespace, ours: Outcome) -> Namespace:
    """Difference: argparse 3.11 drops a -- directly after the script."""
    if isinstance(ours, LaunchSettings) and "--" in argv:
        at = argv.index("--")
        if at == len(argv) - len(ours.training_script_args):
            theirs.training_script_args.insert(0, "--")
    return theirs


def _with_double_dash_as_value(argv: list[str], environ: dict[str, str], ours: Outcome) -> Outcome:
    """Difference: argparse 3.11 makes an empty list of --role=--; the value is the text it is."""

    def restored(value: object) -> object:
        if isinstance(value, list):
            return [restored(each) for each in value]
        return re.sub("(^|=)two-dashes$", r"\1--", value) if isinstance(value, str) else value

    changed = [re.sub("=--$", "=two-dashes", word) for word in argv]
    theirs = expected_outcome(changed, environ, ours)
    if isinstance(theirs, Namespace):
        return Namespace(**{dest: restored(value) for dest, value in vars(theirs).items()})
    return theirs


def assert_same(argv: list[str], environ: dict[str, str]) -> None:
    ours = our_outcome(argv, environ)
    theirs = expected_outcome(argv, environ, ours)
    if not isinstance(theirs, Namespace):
        assert type(ours) is type(theirs), f"{argv} {environ}: {ours}, but torchrun {theirs}"
        return
    assert isinstance(ours, LaunchSettings), f"{argv} {environ}: {ours}, but torchrun {theirs}"
    for dest, value in vars(theirs).items():
        found = getattr(ours, dest)
        assert (list(found) if isinstance(found, tuple) else found) == value, (dest, argv, environ)
    for name in OURS:
        assert getattr(ours, name) == SETTING[name].default


NAMES = sorted(name for option in OPTIONS if option.torchrun for name in option.spellings)
LONG = [name for name in NAMES if name.startswith("--")]
VALUES = ["1", "2", "1:4", "0.5", "-1", "-.5", "-1:2", "", "x", "a b", "-a b", "--a b", "-", "--"]
VALUES += ["spawn", "fork", "bad", "a,,b,c", "node", "0:1,1:2", "k=v", "=", "١", "1_0", " 1 "]
ODD = ["---", "--=3", "-x", "-x3", "-mx", "--bogus", "--bogus=1", "-5", "--nproc-per_node=1"]
SHORTS = ["-m", "-mr", "-r", "-t", "-r3", "-r=3", "-r=", "-t0:1", "-mt3", "-mr=3", "-m=r3", "-m="]
SHORTS += ["-mm", "-mh", "-h", "-hm", "-hr", "-mhx", "-m-r", "-r-1", "-tr"]

names = st.sampled_from(LONG) | st.sampled_from(LONG).flatmap(
    lambda name: st.integers(2, len(name)).map(lambda end: name[:end])
)
values = st.sampled_from(VALUES)
flags = st.sampled_from([name for name in LONG if _value_for({name[2:].replace("-", "_")}) == []])
pieces = st.one_of(
    st.tuples(names, values).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(names, values).map(list),
    flags.map(lambda name: [name]),
    st.sampled_from(SHORTS).map(lambda word: [word]),
    st.tuples(st.sampled_from(["-r", "-t", "-mt"]), values).map(list),
    names.map(lambda name: [name]),
    st.sampled_from(ODD).map(lambda word: [word]),
)
fitting = st.sampled_from([s for s in SETTINGS if s.torchrun and s.kind is not Kind.FLAG]).flatmap(
    lambda setting: st.sampled_from(setting.choices or ["1", "7", "-1"]).flatmap(
        lambda value: st.sampled_from(
            [[f"{name}={value}"] for name in setting.spellings]
            + [[name, value] for name in setting.spellings]
        )
    )
)
scripts = st.sampled_from(["t.py", "pkg.mod", "-", "", "--"]).map(lambda word: [word])
words = st.one_of(values, names, st.sampled_from(SHORTS), st.sampled_from(ODD))
tails = st.tuples(scripts, st.lists(words, max_size=4)).map(lambda pair: pair[0] + pair[1])
command_lines = st.tuples(
    st.lists(fitting | flags.map(lambda name: [name]), max_size=3),
    st.lists(pieces, max_size=2),
    tails | st.just([]),
).map(lambda parts: [word for group in parts[:2] for piece in group for word in piece] + parts[2])
variables = st.dictionaries(
    st.sampled_from([f"PET_{setting.name.upper()}" for setting in SETTINGS]),
    st.sampled_from(["1", "0", "7", "", "x", "true", "1.5", "fork", "a,,b", " 2 "]),
    max_size=2,
)


@settings(max_examples=400, derandomize=True, deadline=None)
@given(argv=command_lines, environ=variables)
@example(argv=["--nproc=2", "t.py"], environ={})
@example(argv=["t.py", "--", "a"], environ={})
@example(argv=["--", "t.py", "--", "a"], environ={})
@example(argv=["--", "--", "a"], environ={})
@example(argv=["t.py", "--n", "--", "--n"], environ={})
@example(argv=["--help", "--n"], environ={})
@example(argv=["--role=--", "--duplicate-stdout-filters=--", "t.py", "--a=--"], environ={})
@example(argv=["--max-restarts=--", "t.py"], environ={})
@example(argv=["--standalone", "t.py"], environ={"PET_STANDALONE": "true"})
@example(argv=["t.py"], environ={"PET_STANDALONE": "true"})
@example(argv=["t.py"], environ={"PET_START_METHOD": "bad"})
@example(argv=["--start-method=fork", "t.py"], environ={"PET_START_METHOD": "bad"})
@example(argv=["--max-restarts=1", "t.py"], environ={"PET_MAX_RESTARTS": "x"})
def test_torchrun_and_we_read_the_same_from_a_command_line(
    argv: list[str], environ: dict[str, str]
) -> None:
    assert_same(argv, environ)


@pytest.mark.parametrize(
    "line",
    [
        "--standalone --nproc-per-node=2 t.py --epochs 2",
        "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host:29400 -m pkg.train --lr 0.1 --help",
        "--nnodes=1:4 --max_restarts 3 --rdzv_id 7 --rdzv_backend c10d --rdzv_endpoint h t.py -x",
        "--nnodes 2 --node_rank 1 --master_addr h --master_port 1234 t.py -- --nproc",
        "-mt3 -r0:1,1:2 --log-dir /tmp/x pkg.mod",
        "--no-python --nproc_per_node gpu ./run.sh a b",
        "--run-path --start-method fork /abs/t.py",
        "--duplicate-stdout-filters=a,,b,c --local-ranks-filter 0,1 --redirect=3 t.py",
        "--signals-to-handle SIGTERM --shutdown-timeout 5 --virtual-local-rank t.py",
        "--numa-binding=core-complex --logs-specs x --event-log-handler console --role r t.py",
    ],
)
def test_command_lines_that_people_write_are_read_alike(line: str) -> None:
    assert isinstance(torch_outcome(line.split(), {}), Namespace)
    assert_same(line.split(), {})


# The differences on purpose, each as docs/reference/torchrun-compat.md states it


def test_difference_a_prefix_of_two_spellings_is_accepted() -> None:
    assert isinstance(torch_outcome(["--nproc=2", "t.py"], {}), Refused)
    ours = our_outcome(["--nproc=2", "t.py"], {})
    assert isinstance(ours, LaunchSettings)
    assert ours.nproc_per_node == "2"


def test_difference_a_double_dash_after_the_script_reaches_it() -> None:
    theirs, ours = torch_outcome(["t.py", "--", "a"], {}), our_outcome(["t.py", "--", "a"], {})
    assert isinstance(theirs, Namespace)
    assert isinstance(ours, LaunchSettings)
    assert theirs.training_script_args == ["a"]
    assert ours.training_script_args == ("--", "a")


def test_difference_the_scripts_options_are_never_taken_for_ours() -> None:
    assert isinstance(torch_outcome(["t.py", "--n", "5"], {}), Refused)
    ours = our_outcome(["t.py", "--n", "5"], {})
    assert isinstance(ours, LaunchSettings)
    assert ours.training_script_args == ("--n", "5")


def test_difference_help_is_shown_whatever_follows_it() -> None:
    assert isinstance(torch_outcome(["--help", "--n"], {}), Refused)
    assert our_outcome(["--help", "--n"], {}) is Help


def test_difference_a_value_of_two_dashes_is_a_text() -> None:
    theirs, ours = torch_outcome(["--role=--", "t.py"], {}), our_outcome(["--role=--", "t.py"], {})
    assert isinstance(theirs, Namespace)
    assert isinstance(ours, LaunchSettings)
    assert (theirs.role, ours.role) == ([], "--")


def test_difference_a_bad_flag_variable_is_a_sentence() -> None:
    assert isinstance(torch_outcome(["t.py"], {"PET_STANDALONE": "true"}), Crashed)
    assert isinstance(our_outcome(["t.py"], {"PET_STANDALONE": "true"}), Refused)


def test_difference_a_bad_choice_in_a_variable_is_refused() -> None:
    assert isinstance(torch_outcome(["t.py"], {"PET_START_METHOD": "bad"}), Namespace)
    assert isinstance(our_outcome(["t.py"], {"PET_START_METHOD": "bad"}), Refused)


def test_difference_no_workers_at_all_is_refused_early() -> None:
    from torch.distributed.run import determine_local_world_size

    assert determine_local_world_size("0") == 0
    with pytest.raises(UsageError, match="at least one worker"):
        parse_nproc_per_node("0")


def test_difference_streams_of_rank_ten_can_be_named() -> None:
    from torch.distributed.elastic.multiprocessing import Std

    with pytest.raises(ValueError, match="10:3"):
        Std.from_str("10:3")
    assert parse_std("10:3") == {10: 3}


@pytest.mark.parametrize(
    "text", ["0", "3", "0:1", "0:3,1:0,2:1,3:2", "9:3", "4", "", "a", "0:4", "0:"]
)
def test_streams_that_torch_understands_mean_the_same(text: str) -> None:
    from torch.distributed.elastic.multiprocessing import Std

    try:
        theirs = Std.from_str(text)
    except ValueError:
        with pytest.raises(UsageError):
            parse_std(text)
    else:
        assert parse_std(text) == theirs
