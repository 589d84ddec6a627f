"""However a program ends, a warm worker leaves what a fresh one leaves and what torchrun's does."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.launch.worker_start import STANDARD_PRELOADS
from tests.fidelity.conftest import Collect
from tests.fidelity.ends import FAILING_MODULE, PROGRAMS
from tests.fidelity.starting import ARGUMENTS, Ended, run_under_torchrun, run_under_us

NAMES = list(PROGRAMS)
# With torch loaded each takes its time to end.
WITH_TORCH = [name for name in NAMES if name.startswith("an end ")]
AS_MODULES = [
    name for name in NAMES if name.startswith(("sys.exit ", "an exception ", "a text with a"))
]
CASES = [
    *((way, name) for way in ("fresh", "warm") for name in NAMES),
    *(pytest.param("warm with torch", name, marks=pytest.mark.full) for name in WITH_TORCH),
]


@pytest.mark.parametrize("way,name", CASES)
def test_an_end_is_the_same_as_under_torchrun(collect: Collect, way: str, name: str) -> None:
    ours, theirs = ends_in(collect, way), ends_in(collect, "torchrun")
    assert Ended(**ours[name]) == Ended(**theirs[name])


@pytest.mark.full
@pytest.mark.parametrize("name", AS_MODULES)
@pytest.mark.parametrize("way", ["fresh", "warm"])
def test_the_end_of_a_module_is_the_same_as_under_torchrun(
    collect: Collect, way: str, name: str
) -> None:
    ours, theirs = ends_in(collect, f"{way} -m"), ends_in(collect, "torchrun -m")
    assert Ended(**ours[name]) == Ended(**theirs[name])


def ends_in(collect: Collect, way: str) -> dict[str, Any]:
    """What every program left that was run in this way, by its name."""
    names = AS_MODULES if way.endswith("-m") else NAMES
    if way == "warm with torch":
        names = WITH_TORCH
    ends = collect(f"ends {way}", lambda directory: all_ends(directory, way, names))
    assert isinstance(ends, dict)
    return ends


def all_ends(directory: Path, way: str, names: list[str]) -> dict[str, Any]:
    """Run these programs; one place for all ways, since paths show in tracebacks."""
    programs = directory.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "failing_module.py").write_text(FAILING_MODULE)
    commands = []
    for name in names:
        program = programs / f"program{NAMES.index(name)}.py"
        program.write_bytes(PROGRAMS[name])
        commands.append([*(("-m", program.stem) if way.endswith("-m") else (program,)), *ARGUMENTS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(programs))
        ends = run_all(directory, way, [list(map(str, command)) for command in commands])
    return {name: end.as_json() for name, end in zip(names, ends, strict=True)}


def run_all(directory: Path, way: str, commands: list[list[str]]) -> list[Ended]:
    match way.removesuffix(" -m"):
        case "torchrun":
            return run_under_torchrun(commands, directory)
        case "fresh":
            return run_under_us(commands, directory, None)
        case "warm":
            return run_under_us(commands, directory, ())
        case _:
            return run_under_us(commands, directory, STANDARD_PRELOADS)
