"""A job on Slurm is checked, watched and asked where its manager runs; every node answers."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from tests.cli.conftest import JOB_PROGRAM
from tests.engines.slurm.jobs import GATE, SlurmJobs
from tests.harness.launcher import Finished, Launcher

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def ask(launcher: Launcher) -> Callable[..., Finished]:
    """`dlrover-job` as somebody types it on the machine of the job."""
    return partial(launcher.launch, command=[JOB_PROGRAM])


def test_nodes_are_checked_shown_and_aborted(
    submit: SlurmJobs, ask: Callable[..., Finished]
) -> None:
    job = submit("--nnodes=2", "--precheck=1")
    assert job.wait_for_gate() == 0
    for agent in ("n1", "n2"):
        [check] = job.events("preflight_result", agent)
        assert {each["standing"] for each in check["nodes"]} <= {"sound", "slow"}

    shown = ask(["stacks", "--wait", "5"])
    assert shown.returncode == 0, shown
    assert shown.stdout.splitlines()[0] == "2 ranks on 2 nodes:"

    picture = json.loads(ask(["top", "--json"]).stdout)
    assert [rank["global_rank"] for rank in picture["ranks"]] == [0, 1]
    assert sorted(node["agent"] for node in picture["nodes"]) == ["n1.0", "n2.1"]

    restarted = ask(["restart"])
    assert "all 2 nodes are stopped and started again as attempt 1" in restarted.stdout, restarted
    job.running.wait_for(lambda _: len(job.started(attempt=1)) == 2, 60)

    aborted = ask(["abort"])
    assert "exit code 82, and nothing retries" in aborted.stdout, aborted
    finished = job.finish()
    assert finished.returncode == 82, finished
    assert job.result["outcome"] == "aborted"
    assert job.checkpoint == GATE
