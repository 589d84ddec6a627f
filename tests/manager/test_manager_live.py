"""Jobs on several nodes with real launchers: what is lost is replaced, and they end as one."""

from tests.manager.managed_job import JobStarter, ManagedJob


def test_a_job_on_two_nodes_succeeds_and_leaves_its_records(manage: JobStarter) -> None:
    job = manage("n1 n2")
    job.wait_for_steps(attempt=0, ranks=2)
    finished = job.finish()
    assert finished.returncode == 0, finished
    assert job.result["outcome"] == "succeeded"
    assert (job.result["exit_code"], job.result["attempts"]) == (0, 1)
    nodes = {path.name for path in (job.run_directory / "nodes").iterdir()}
    assert nodes == {"manager", "n1.0", "n2.1"}
    for agent in ("n1.0", "n2.1"):
        (log,) = (job.run_directory / "nodes" / agent).glob("logs/attempt_0/*/stdout.log")
        assert log.exists()
    kinds = [event["kind"] for event in job.events()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert job.placed() == ["n1", "n2"]
    assert [event["nodes"] for event in job.events("round")] == [2]
    assert sorted(event["agent"] for event in job.events("agent_ended")) == ["n1.0", "n2.1"]
