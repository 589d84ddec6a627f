"""One cluster for all tests of the platform, and jobs on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.ray.engine import RayEngine, missing
from tests.engines.ray.jobs import RayJobs
from tests.harness.engines import absent
from tests.harness.launcher import Launcher


@pytest.fixture(scope="session")
def ray_engine() -> Iterator[RayEngine]:
    if reason := missing():
        absent(reason)
    engine = RayEngine()
    yield engine
    engine.close()


@pytest.fixture
def jobs(ray_engine: RayEngine, launcher: Launcher, tmp_path: Path) -> RayJobs:
    """Starts jobs on the cluster, which has three nodes now."""
    ray_engine.ensure()
    return RayJobs(ray_engine, launcher, tmp_path)
