"""Fixtures of the whole suite: launching, worker scripts, CPU load, and no process left behind."""

import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.harness.launcher import Finished, Launcher, LaunchSession, Running
from tests.harness.processes import TOKEN_VARIABLE, assert_no_process_left
from tests.harness.scripts import Scripts

# A loaded machine is no reason to fail an example.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

# A shell has what it runs in the background ignore the one, nohup has it ignore the other, and all
# children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_failed = pytest.StashKey[bool]()
_USUAL_TIMEOUT = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that may take longest begin first; at the end nobody waits for one of them alone."""
    items.sort(key=_longest_first)


def _longest_first(item: pytest.Item) -> float:
    allowed = item.get_closest_marker("timeout")
    return 0.0 if allowed is None else min(0.0, _USUAL_TIMEOUT - allowed.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session")
def launch_session() -> Iterator[LaunchSession]:
    """Shared by all launches of this test process; its end fails if a process was left."""
    session = LaunchSession()
    yield session
    session.close()


@pytest.fixture(autouse=True)
def process_token(
    launch_session: LaunchSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Marks every process that the test starts, in whatever way; none may outlive the test."""
    token = launch_session.new_test_token()
    monkeypatch.setenv(TOKEN_VARIABLE, token.ljust(32, "0"))
    yield token
    try:
        assert_no_process_left(token)
    except AssertionError:
        # A test that failed half-way is not to blame for what it could not clean up.
        if not request.node.stash.get(_failed, False):
            raise


@pytest.fixture
def launcher(
    launch_session: LaunchSession,
    process_token: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Launcher]:
    """Starts launchers; `launch` and `start` are its methods."""
    launcher = Launcher(launch_session, tmp_path, process_token)
    yield launcher
    left = launcher.clean_up()
    if left and not request.node.stash.get(_failed, False):
        pytest.fail(f"the test did not finish its launchers: {[r.argv for r in left]}")


@pytest.fixture
def launch(launcher: Launcher) -> Callable[..., Finished]:
    """`launch(argv, *, env, cwd, timeout=60, real, command, …) -> Finished`."""
    return launcher.launch


@pytest.fixture
def start(launcher: Launcher) -> Callable[..., Running]:
    """`start(argv, *, env, cwd, real, command, …) -> Running`."""
    return launcher.start


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """Writes worker scripts into the test's own directory."""
    return Scripts(tmp_path)


@pytest.fixture(scope="session")
def pip_install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """`pip_install(folder of a package) -> the folder into which it was really installed`."""
    from tests.harness.packages import install

    return lambda source: install(source, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def load() -> Callable[..., Any]:
    """`with load(): …` runs the block on a busy machine."""
    from tests.harness.load import cpu_load

    return cpu_load
