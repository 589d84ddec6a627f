"""One Slurm for all tests of a process; each test finds it idle."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.slurm.engine import Slurm, missing_programs
from tests.engines.slurm.jobs import SlurmJobs
from tests.harness.engines import absent
from tests.harness.launcher import Running


@pytest.fixture(scope="session")
def slurm_engine() -> Iterator[Slurm]:
    missing = missing_programs()
    if missing:
        absent(f"Slurm is not installed: there is no {', '.join(missing)}")
    directory = Path(tempfile.mkdtemp(prefix="dlr-slurm-"))
    engine = Slurm(directory)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def slurm(slurm_engine: Slurm) -> Slurm:
    slurm_engine.heal()
    return slurm_engine


@pytest.fixture
def submit(slurm: Slurm, start: Callable[..., Running], tmp_path: Path) -> SlurmJobs:
    """`submit(*options, script) -> SlurmJob`, in the foreground."""
    return SlurmJobs(slurm, start, tmp_path)
