"""Touching a managed job: its manager is asked, and every agent answers over its leash."""

import pytest

from tests.harness.touching import Touch
from tests.harness.waiting import eventually
from tests.manager.managed_job import JobStarter, ManagedJob


@pytest.fixture
def touch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Touch:
    return Touch(monkeypatch, capsys)


def agents_of(job: ManagedJob) -> list[str]:
    return sorted(path.name for path in job.run_directory.glob("nodes/n*"))


def test_the_manager_asks_every_agent_and_aborts_them_all(manage: JobStarter, touch: Touch) -> None:
    job = manage("n1 n2")
    job.wait_for_steps(attempt=0, ranks=2)
    state = job.directory / "state"
    code, out, err = touch(state, "stacks")
    assert (code, out.splitlines()[0]) == (0, "2 ranks on 2 nodes:"), err
    code, out, _ = touch(state, "restart")
    assert code == 0
    assert "the workers of all 2 nodes are stopped and started again as attempt 1" in out
    job.wait_for_steps(attempt=1, ranks=2)
    assert {fact["restart_count"] for fact in job.started(1)} == {0}
    code, _, err = touch(state, "node-failover")
    assert code == 1
    assert "say which node with --node: 0 (" in err
    code, _, err = touch(state, "node-failover", "--node", "5")
    assert code == 1
    assert "there is no node 5" in err
    code, out, err = touch(state, "abort")
    assert code == 0, err
    assert "exit code 82, and nothing retries" in out
    ended = job.finish_by_itself()
    assert ended.returncode == 82, ended
    assert job.result["outcome"] == "aborted"
    assert "with dlrover-job abort" in job.result["reason"]
    for agent in ("manager", *agents_of(job)):
        assert "abort" in [event["command"] for event in job.events("control_request", agent)]
    assert list(job.run_directory.glob("nodes/*/control.json")) == []


@pytest.mark.full
def test_a_node_is_replaced_by_a_spare_on_request(manage: JobStarter, touch: Touch) -> None:
    job = manage("n1 n2 n3")
    job.wait_for_steps(attempt=0, ranks=2)
    code, out, err = touch(job.directory / "state", "node-failover", "--node", "1")
    assert code == 0, err
    assert "node 1 leaves, and the manager replaces it (node relaunch 1 of 3)" in out
    job.wait_for_event("replacing")
    job.wait_for_steps(attempt=1, ranks=2)
    assert len(job.placed()) == 3
    ended = job.finish()
    assert ended.returncode == 0, ended


@pytest.mark.full
def test_a_job_that_waits_for_nodes_can_be_aborted(manage: JobStarter, touch: Touch) -> None:
    job = manage("n1", nnodes="2")
    state = job.directory / "state"
    eventually(lambda: list(state.glob("dlrover/runs/*/nodes/manager/control.json")), 30)
    code, out, _ = touch(state, "restart")
    assert code == 0
    assert "a new attempt start" in out
    code, out, _ = touch(state, "abort")
    assert code == 0
    assert "exit code 82" in out
    assert job.finish_by_itself().returncode == 82
