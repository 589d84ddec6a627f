"""What the three ways of starting workers showed, collected once for all tests that compare it."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Launcher, LaunchSession

Collect = Callable[[str, Callable[[Path], Any]], Any]

# Whoever runs the tests may have set some of these for all of them.
PYTHONS_OWN = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "PYTHONHASHSEED")


@pytest.fixture(scope="session")
def _plain_python() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in PYTHONS_OWN:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def collect(tmp_path_factory: pytest.TempPathFactory, _plain_python: None) -> Collect:
    """`collect(name, function)`: the function's JSON, made by one test process for all of them."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fidelity"
    shared.mkdir(exist_ok=True)

    def collect(name: str, function: Callable[[Path], Any]) -> Any:
        name = name.replace(" ", "_")
        answer = shared / f"{name}.json"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not answer.exists():
                directory = shared / name
                # A failure is one; it is not repeated by all the tests that wait for the answer.
                assert not directory.exists(), f"{name} could not be collected"
                directory.mkdir()
                answer.write_text(json.dumps(function(directory)))
        return json.loads(answer.read_text())

    return collect


@pytest.fixture(scope="session")
def session_launcher(
    launch_session: LaunchSession, tmp_path_factory: pytest.TempPathFactory, _plain_python: None
) -> Launcher:
    """Launches on behalf of all tests of the session."""
    token = launch_session.new_test_token()
    return Launcher(launch_session, tmp_path_factory.mktemp("fidelity"), token)
