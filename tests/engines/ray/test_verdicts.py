"""What a user's failover extension says is done on the cluster as it is on one machine."""

from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

EXTENSION = """\
import os
from dlrover.python.common.enums import FailoverStrategy
from dlrover.python.elastic_agent.torch.dynamic_failover import DynamicAgentFailoverExtension

class Verdict(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy[os.environ["VERDICT"] + "_FAILOVER"]
"""


def start(jobs: RayJobs, directory: Path, verdict: str, *options: str, steps: int = 12):
    jobs.training(fails=True)
    (directory / "verdict.py").write_text(EXTENSION)
    return jobs.start(
        "--nnodes=2",
        "--dynamic_failover_extension=verdict::Verdict",
        *options,
        steps=steps,
        env={"VERDICT": verdict},
    )


def test_node_replaces_the_node_of_the_failed_rank(jobs: RayJobs, tmp_path: Path):
    finished = start(jobs, tmp_path, "NODE").finish(90)
    assert finished.returncode == 0, finished
    failed = jobs.node_of(rank=1)
    assert failed not in {jobs.node_of(0, attempt=1), jobs.node_of(1, attempt=1)}
    assert jobs.checkpoint() == 12
    result = jobs.result()
    assert (result["outcome"], result["attempts"], result["generation"]) == ("succeeded", 2, 0)


def test_global_restarts_the_job_on_every_node(jobs: RayJobs, tmp_path: Path):
    finished = start(jobs, tmp_path, "GLOBAL").finish(90)
    assert finished.returncode == 0, finished
    assert jobs.checkpoint() == 12
    assert len(jobs.events("agent_placed")) == 2
    result = jobs.result()
    assert (result["outcome"], result["attempts"], result["generation"]) == ("succeeded", 2, 1)


def test_abortion_ends_the_job_with_82_and_says_why(jobs: RayJobs, tmp_path: Path):
    running = start(jobs, tmp_path, "ABORTION", f"--result_file={tmp_path / 'end.json'}")
    finished = running.finish(90)
    assert finished.returncode == 82, finished
    assert {step.attempt for step in jobs.steps()} == {0}
    result = jobs.result()
    assert (result["outcome"], result["exit_code"]) == ("aborted", 82)
    assert (result["strategy"], result["decision"]) == ("ABORTION_FAILOVER", "abort")
    assert (tmp_path / "end.json").read_text() == (jobs.run_directory() / "result.json").read_text()
