"""However a job ends, nothing of it is left on the cluster within ten seconds."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.engines.ray.jobs import RayJobs
from tests.harness.launcher import Running

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def type_ctrl_c(running: Running) -> None:
    running.type(b"\x03")


def kill(running: Running) -> None:
    running.kill()


@pytest.mark.parametrize(
    "end, code",
    [
        pytest.param(type_ctrl_c, 128 + signal.SIGINT, id="ctrl-c"),
        pytest.param(kill, -signal.SIGKILL, id="kill-9"),
    ],
)
def test_nothing_is_left_within_ten_seconds(
    jobs: RayJobs, end: Callable[[Running], None], code: int
):
    running = jobs.start("--nnodes=2", steps=5000, tty=end is type_ctrl_c)
    jobs.wait_for_step(running, 3)
    at_work = running.processes()
    assert len(at_work) > 4  # the launcher, its store, two agents and their workers
    since = time.monotonic()
    end(running)
    jobs.assert_nothing_left(running, since)
    assert running.finish(5).returncode == code
    last = max(step.time for step in jobs.steps())
    assert last < time.time()
    jobs.wait_until_free()
