"""However a program ends, a warm worker leaves what a fresh one leaves and what torchrun's does."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.launch.worker_start import STANDARD_PRELOADS
from tests.fidelity.conftest import Collect
from tests.fidelity.ends import FAILING_MODULE, PROGRAMS
from tests.fidelity.starting import ARGUMENTS, Ended, run_under_torchrun, run_under_us

NAMES = list(PROGRAMS)


def all_ends(directory: Path, way: str) -> list[dict[str, Any]]:
    """Run every program in one way; one place for all ways, since paths show in tracebacks."""
    programs = directory.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "failing_module.py").write_text(FAILING_MODULE)
    commands = []
    for number, text in enumerate(PROGRAMS.values()):
        program = programs / f"program{number}.py"
        program.write_bytes(text)
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
    return [end.as_json() for end in ends]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["fresh", "warm", pytest.param("loaded", marks=pytest.mark.full)])
def test_an_end_is_the_same_as_under_torchrun(collect: Collect, way: str, name: str) -> None:
    theirs, ours = (
        Ended(**collect(f"ends-{each}", lambda d, each=each: all_ends(d, each))[NAMES.index(name)])
        for each in ("torchrun", way)
    )
    assert ours == theirs
