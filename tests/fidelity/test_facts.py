"""Whatever a worker looks at, a warm one sees what a fresh one sees and what torchrun's sees.

`programs/observe.py` looks; here is what may differ, and where the page says so.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fidelity.conftest import Collect
from tests.fidelity.programs import observe
from tests.harness.launcher import Launcher
from tests.harness.processes import TOKEN_VARIABLE
from tests.integration.test_parity import variables
from tests.project.documents import text

PROGRAMS = Path(__file__).with_name("programs")
STDIN = b"the first line\nand then some more\n"
RANKS = 2
Facts = dict[str, Any]

# No two workers share them, of one launch or of two.
UNIQUE = {
    "random_numbers",
    "uuids",
    "temporary_names",
    "numpy_random_numbers",
    "torch_random_numbers",
}
# Given to the workers of one launch, and others to those of the next.
PER_RUN = {
    "FACTS",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "XDG_STATE_HOME",
    TOKEN_VARIABLE,
}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to start workers."""

    command: str
    options: tuple[str, ...] = ()
    real: bool = False


WAYS = {
    "torchrun": Way("torchrun"),
    "fresh": Way("dlrover-run", ("--worker_start=fresh",)),
    # Executed: a launcher that is itself forked has other things to inherit.
    "warm": Way("dlrover-run", ("--worker_start=warm",), real=True),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How the observing program is given to the launcher."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    prepare: Callable[[Path], None] = lambda directory: None
    heavy: bool = False


def make_package(directory: Path) -> None:
    package = directory / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("NAME = 'pkg'\n")
    (package / "sibling.py").write_text("from . import NAME\n")
    shutil.copy(directory / "observe.py", package / "observe.py")
    body = "from . import observe\nfrom .sibling import NAME\n"
    (package / "__main__.py").write_text(body + _rest_of_main())


def _rest_of_main() -> str:
    """The observing program itself, below relative imports."""
    return (PROGRAMS / "observe.py").read_text()


def make_symbolic_link(directory: Path) -> None:
    (directory / "links").mkdir()
    (directory / "links" / "train").symlink_to(directory / "observe.py")


SETTINGS = {
    "a script": Setting(("observe.py", "--lr", "0.1", "two words", ""), {}, heavy=True),
    "a package": Setting(("-m", "pkg", "--lr", "0.1"), {}, make_package),
    "an odd path": Setting(
        ("../here/./links/train",), {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, make_symbolic_link
    ),
    "variables for Python": Setting(
        ("observe.py",),
        {
            "PYTHONOPTIMIZE": "1",
            "PYTHONWARNINGS": "error::UserWarning,default::ResourceWarning",
            "PYTHONUTF8": "1",
            "PYTHONIOENCODING": "latin-1:replace",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": "elsewhere:.",
            "PYTHONSAFEPATH": "1",
            "PYTHONNODEBUGRANGES": "1",
            "PYTHONINTMAXSTRDIGITS": "5000",
        },
    ),
    "variables for torch": Setting(
        ("observe.py",), {"TORCH_LOGS": "+dynamo,distributed", "OMP_NUM_THREADS": "2"}, heavy=True
    ),
}
DEFAULT = "a script"
QUICK = [name for name in observe.FACTS if name not in observe.HEAVY]
CASES = [
    pytest.param(
        setting, fact, id=f"{setting}-{fact}", marks=() if setting == DEFAULT else pytest.mark.full
    )
    for setting, facts in SETTINGS.items()
    for fact in (observe.FACTS if facts.heavy else QUICK)
    if fact not in UNIQUE
]


@pytest.fixture(scope="session")
def observed(collect: Collect, session_launcher: Launcher) -> Callable[[str, str], list[Facts]]:
    """`observed(setting, way)`: what each rank saw."""

    def observed(setting: str, way: str) -> list[Facts]:
        ranks = collect(
            f"{setting} {way}", lambda d: observe_all(session_launcher, d, setting, way)
        )
        assert isinstance(ranks, list)
        return ranks

    return observed


def observe_all(launcher: Launcher, directory: Path, setting: str, way: str) -> list[Facts]:
    here = directory.parent / setting.replace(" ", "_") / "here"  # one place for all ways
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    for name in ("observe.py", "beside.py"):
        shutil.copy(PROGRAMS / name, here / name)
    given, started = SETTINGS[setting], WAYS[way]
    given.prepare(here)
    env = {**given.env, "FACTS": str(directory), "PWD": str(here)}
    if not given.heavy:
        env["QUICK"] = "1"
    with pytest.MonkeyPatch.context() as patch:
        # Not as `env=`: a launcher that starts interpreters need not be started by one itself.
        for name, value in env.items():
            patch.setenv(name, value)
        finished = launcher.launch(
            [f"--nproc-per-node={RANKS}", *started.options, *given.argv],
            command=started.command,
            real=started.real,
            env={
                "TMPDIR": str(here.parent),
                **{name: value for name, value in env.items() if name.startswith("TORCH_")},
            },
            cwd=here,
            stdin=STDIN,
        )
    assert finished.returncode == 0, finished
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("setting,fact", CASES)
def test_a_fact_is_the_same_as_under_torchrun(
    observed: Callable[[str, str], list[Facts]], setting: str, fact: str
) -> None:
    theirs, fresh, warm = (observed(setting, way) for way in WAYS)
    for rank in range(RANKS):
        values = [ranks[rank][fact] for ranks in (theirs, fresh, warm)]
        if fact in DIFFERENCES:
            DIFFERENCES[fact](*values)
        else:
            assert values[1] == values[0], "a fresh worker and torchrun's"
            assert values[2] == values[0], "a warm worker and torchrun's"


@pytest.mark.parametrize("fact", sorted(UNIQUE))
def test_no_two_workers_share_a_random_number(
    observed: Callable[[str, str], list[Facts]], fact: str
) -> None:
    seen = [ranks[fact] for way in WAYS for ranks in observed(DEFAULT, way)]
    for key in seen[0]:
        assert len({str(each[key]) for each in seen}) == len(WAYS) * RANKS, key


def test_texts_hash_alike_in_all_warm_workers(
    observed: Callable[[str, str], list[Facts]],
) -> None:
    hashes = {way: {rank["hash_of_a_text"] for rank in observed(DEFAULT, way)} for way in WAYS}
    assert [len(hashes[way]) for way in WAYS] == [RANKS, RANKS, 1]


@pytest.mark.full
def test_a_hash_seed_that_is_given_counts_for_all(
    observed: Callable[[str, str], list[Facts]],
) -> None:
    ranks = [rank for way in WAYS for rank in observed("variables for Python", way)]
    assert len({rank["hash_of_a_text"] for rank in ranks}) == 1


def test_every_difference_is_on_the_page() -> None:
    assert set(differences_on_the_page()) == set(DIFFERENCES)


def same_environment(theirs: Facts, fresh: Facts, warm: Facts) -> None:
    added = variables("added")
    for where in ("told", "inherited"):
        expected = {name: v for name, v in theirs[where].items() if name not in PER_RUN}
        for ours in (fresh, warm):
            found = {n: v for n, v in ours[where].items() if n not in PER_RUN | added}
            assert found == expected
            assert added <= set(ours[where])


def finders_as_loaded(theirs: list[str], fresh: list[str], warm: list[str]) -> None:
    assert [name for name in fresh if name != "ImportWatch"] == theirs
    assert warm == theirs


def more_modules(theirs: list[str], fresh: list[str], warm: list[str]) -> None:
    assert set(fresh) - set(theirs) <= {"_dlrover_worker", "atexit", "faulthandler"}
    assert set(warm) >= {*theirs, "torch", "numpy"}
    assert set(warm).isdisjoint({"dlrover_cli", "typer", "rich", "importlib_metadata"})


def ours_are_replaced(theirs: list[str], fresh: list[str], warm: list[str]) -> None:
    assert theirs == []
    assert fresh == warm == ["excepthook", "exit", "_exit", "breakpointhook"]


def enabled_by_us(theirs: bool, fresh: bool, warm: bool) -> None:
    assert fresh is True
    assert warm is True


def those_of_loaded_modules(theirs: Any, fresh: Any, warm: Any) -> None:
    assert fresh[0] == theirs[0]
    own = [each for each in warm[0] if each in theirs[0]]
    assert own == theirs[0], "the user's and Python's are there, in their order"
    assert warm[1:] == theirs[1:]


def at_least_as_many(theirs: int, fresh: int, warm: int) -> None:
    assert fresh in (theirs, theirs + 1), "one of them is ours"
    assert warm >= theirs


def but_for_stderr(theirs: Facts, fresh: Facts, warm: Facts) -> None:
    stderr = {"2", "stderr"}
    expected = {name: value for name, value in theirs.items() if name not in stderr}
    assert {name: value for name, value in fresh.items() if name not in stderr} == expected
    assert warm == fresh


def may_be_another(theirs: int, fresh: int, warm: int) -> None:
    """See `test_texts_hash_alike_in_all_warm_workers`."""


def frozen(theirs: bool, fresh: bool, warm: bool) -> None:
    assert not fresh
    assert warm


def a_few_levels_less(theirs: int, fresh: int, warm: int) -> None:
    assert fresh == theirs
    assert theirs - 8 <= warm <= theirs


def frames_of_ours(theirs: list[Any], fresh: list[Any], warm: list[Any]) -> None:
    assert fresh == theirs
    assert warm[: len(theirs)] == theirs
    if not theirs:
        assert warm == []


def printed_frames(theirs: str, fresh: str, warm: str) -> None:
    assert fresh == theirs
    assert warm.endswith(theirs)


DIFFERENCES: dict[str, Callable[[Any, Any, Any], None]] = {
    "environment": same_environment,
    "finders_of_modules": finders_as_loaded,
    "modules_loaded": more_modules,
    "open_descriptors": but_for_stderr,
    "standard_streams": but_for_stderr,
    "replaced_functions": ours_are_replaced,
    "fault_handler": enabled_by_us,
    "warning_filters": those_of_loaded_modules,
    "warning_filters_after_torch": at_least_as_many,
    "exit_functions": at_least_as_many,
    "hash_of_a_text": may_be_another,
    "objects_that_are_never_collected": frozen,
    "recursion_room": a_few_levels_less,
    "frames_below_the_script": frames_of_ours,
    "a_traceback_printed_at_module_level": printed_frames,
}


def differences_on_the_page() -> Iterator[str]:
    """The facts that the page's table names as differing."""
    page = (
        text("docs/explanation/warm-workers.md")
        .partition("## Known differences\n")[2]
        .partition("\n## ")[0]
    )
    for line in page.splitlines():
        if line.startswith("|") and (fact := re.search(r"`(\w+)` \|$", line.strip())):
            yield fact[1]
