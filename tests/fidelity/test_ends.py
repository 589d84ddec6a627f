"""However a program ends, a warm worker leaves what a fresh one leaves and what torchrun's does."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.launch.worker_start import STANDARD_PRELOADS
from tests.fidelity.conftest import Collect
from tests.fidelity.ends import FAILING_MODULE, PROGRAMS
from tests.fidelity.starting import ARGUMENTS, Ended, run_under_torchrun, run_under_us

NAMES = list(PROGRAMS)
# With torch loaded each takes a third of a second to end.
WITH_TORCH = [name for name in NAMES if name.startswith("an end ")]
CASES = [
    *((way, name) for way in ("fresh", "warm") for name in NAMES),
    *(pytest.param("warm with torch", name, marks=pytest.mark.full) for name in WITH_TORCH),
]


@pytest.mark.parametrize("way,name", CASES)
def test_an_end_is_the_same_as_under_torchrun(collect: Collect, way: str, name: str) -> None:
    theirs, ours = (
        Ended(**collect(f"ends {each}", lambda d, each=each: all_ends(d, each))[name])
        for each in ("torchrun", way)
    )
    assert ours == theirs


def all_ends(directory: Path, way: str) -> dict[str, Any]:
    """Run every program in one way; one place for all ways, since paths show in tracebacks."""
    programs = directory.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "failing_module.py").write_text(FAILING_MODULE)
    names = WITH_TORCH if way == "warm with torch" else NAMES
    commands = []
    for name in names:
        program = programs / f"program{NAMES.index(name)}.py"
        program.write_bytes(PROGRAMS[name])
        commands.append([str(program), *ARGUMENTS])
    match way:
        case "torchrun":
            ends = run_under_torchrun(commands, directory)
        case "fresh":
            ends = run_under_us(commands, directory, None)
        case "warm":
            ends = run_under_us(commands, directory, ())
        case _:
            ends = run_under_us(commands, directory, STANDARD_PRELOADS)
    return {name: end.as_json() for name, end in zip(names, ends, strict=True)}
