"""Jobs on several nodes with real launchers: what is lost is replaced, and they end as one."""

import itertools
import signal
import time

import pytest

from tests.harness.processes import descendants_and_orphans
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.manager.managed_job import JobStarter, ManagedJob

REPLACES = """
import json, os
from dlrover_cli.contracts.manager import ManagerExtension
from tests.manager import manage_processes

class Extension(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes):
        with open(os.environ["CALLS"], "a") as file:
            for node in nodes:
                deployment = self.manager.deployment
                call = [node.id, node.hostname, node.ip_address, node.envs, dict(node.resources)]
                call += [node.reason, deployment.engine, deployment.ground]
                file.write(json.dumps(call) + "\\n")
        for new in os.environ["BRINGS"].split():
            manage_processes.cluster.add_node(new)
        return nodes if "BRINGS_THEM_BACK" in os.environ or os.environ["BRINGS"] else []
"""
OF_N2 = (
    '["n2", "n2", "127.0.0.1", {"RACK": "rack-of-n2"}, {"CPU": 1.0}, '
    '"it is lost", "processes", "machines"]'
)

VERDICT = """
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

class Verdict(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy.{strategy}
"""


@pytest.fixture
def calls(manage: JobStarter) -> "Calls":
    manage.install_extension(REPLACES)
    return Calls(manage)


class Calls:
    """An extension that writes down what it is asked."""

    def __init__(self, manage: JobStarter) -> None:
        self._file = manage.directory / "calls"

    def environment(self, brings: str = "") -> dict[str, str]:
        return {"CALLS": str(self._file), "BRINGS": brings}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._file.read_text().splitlines() if self._file.exists() else [])


def with_verdict(manage: JobStarter, strategy: str) -> str:
    (manage.directory / "verdict.py").write_text(VERDICT.format(strategy=strategy))
    return "--dynamic_failover_extension=verdict::Verdict"


def assert_nothing_is_lost(job: ManagedJob) -> None:
    """Each step follows the one before, whoever took it; the last one is in the checkpoint."""
    numbers = [step.number for step in job.steps() if step.rank == 0]
    for before, after in itertools.pairwise(numbers):
        # The step that a lost node did not come to save is taken again.
        assert after in (before, before + 1)
    assert numbers[0] == 1
    assert numbers[-1] == int((job.directory / "checkpoint").read_text())


def assert_no_step_after_the_next_attempts_first(job: ManagedJob) -> None:
    newest = -1
    for step in job.steps():
        assert step.attempt >= newest, (step, newest)
        newest = step.attempt


class TestSuccess:
    def test_a_job_on_two_nodes_succeeds_and_leaves_its_records(self, manage: JobStarter) -> None:
        job = manage("n1 n2")
        job.wait_for_steps(attempt=0, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert job.result["outcome"] == "succeeded"
        assert (job.result["exit_code"], job.result["attempts"]) == (0, 1)
        nodes = {path.name for path in (job.run_directory / "nodes").iterdir()}
        assert nodes == {"manager", "n1.0", "n2.1"}
        for agent in ("n1.0", "n2.1"):
            directory = job.run_directory / "nodes" / agent
            assert len(list(directory.glob("logs/attempt_0/*/stderr.log"))) == 1
        kinds = [event["kind"] for event in job.events()]
        assert kinds[0] == "run_started"
        assert kinds[-1] == "run_finished"
        assert job.placed() == ["n1", "n2"]
        assert [event["nodes"] for event in job.events("round")] == [2]
        assert sorted(event["agent"] for event in job.events("agent_ended")) == ["n1.0", "n2.1"]

    @pytest.mark.full
    def test_a_node_that_joins_later_makes_the_job_larger(self, manage: JobStarter) -> None:
        job = manage("n1", nnodes="1:2")
        job.wait_for_steps(attempt=0, ranks=1)
        job.order("add_node n2")
        job.wait_for_steps(attempt=1, ranks=2)
        assert [fact["world_size"] for fact in job.started(1)] == [2, 2]
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert_nothing_is_lost(job)
        assert job.result["restart_count"] == 0


class TestLostNode:
    def test_a_spare_takes_its_place(self, manage: JobStarter, calls: Calls) -> None:
        job = manage("n1 n2 n3", env=calls.environment())
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("lose_node n2")
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert job.placed() == ["n1", "n2", "n3"]
        assert [fact["restart_count"] for fact in job.started(1)] == [0, 0]
        assert (job.result["attempts"], job.result["restart_count"]) == (2, 0)
        assert_nothing_is_lost(job)
        assert_no_step_after_the_next_attempts_first(job)
        assert list(calls) == [OF_N2]
        [answer] = job.events("nodes_relaunched")
        assert (answer["relaunched"], answer["ignored"]) == ([], ["n2"])

    @pytest.mark.full
    def test_an_extension_brings_a_new_node(self, manage: JobStarter, calls: Calls) -> None:
        job = manage("n1 n2", env=calls.environment(brings="n2-again"))
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("lose_node n2")
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert job.placed() == ["n1", "n2", "n2-again"]
        assert list(calls) == [OF_N2]
        [answer] = job.events("nodes_relaunched")
        assert (answer["relaunched"], answer["ignored"], answer["problem"]) == (["n2"], [], "")
        assert_nothing_is_lost(job)

    @pytest.mark.full
    def test_nothing_is_relaunched_and_the_job_goes_on_with_fewer(self, manage: JobStarter) -> None:
        job = manage("n1 n2", nnodes="1:2")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("lose_node n2")
        job.wait_for_steps(attempt=1, ranks=1)
        assert [fact["world_size"] for fact in job.started(1)] == [1]
        finished = job.finish()
        assert finished.returncode == 0, finished
        [answer] = job.events("nodes_relaunched")
        assert answer["ignored"] == ["n2"]
        assert answer["problem"] == "no extension replaces nodes"
        assert_nothing_is_lost(job)

    @pytest.mark.full
    def test_a_spare_is_taken_before_the_engine_has_noticed(self, manage: JobStarter) -> None:
        job = manage("n1 n2 n3")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("crash_node n2")
        job.wait_for_steps(attempt=1, ranks=2)
        job.order("forget_node n2")
        assert job.finish().returncode == 0
        assert job.placed() == ["n1", "n2", "n3"]
        assert len(job.events("replacing")) == 1

    @pytest.mark.full
    def test_one_that_returns_is_used_again(self, manage: JobStarter) -> None:
        job = manage("n1 n2")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("lose_node n2")
        job.wait_for_event("nodes_relaunched")
        job.order("add_node n2")
        job.wait_for_steps(attempt=1, ranks=2)
        assert job.finish().returncode == 0
        assert job.placed() == ["n1", "n2", "n2"]
        assert_nothing_is_lost(job)

    def test_one_that_the_engine_only_forgot_is_fenced(self, manage: JobStarter) -> None:
        job = manage("n1 n2 n3")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("forget_node n1")
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert_no_step_after_the_next_attempts_first(job)
        assert_nothing_is_lost(job)
        [fence] = job.events("fence")
        assert fence["agent"] == "n1.0"
        assert job.events("taken_out", agent="n1.0")
        assert job.placed() == ["n1", "n2", "n3"]
        assert (job.result["attempts"], job.result["restart_count"]) == (2, 0)

    @pytest.mark.full
    def test_an_agent_that_was_killed_on_a_healthy_node_is_placed_there_again(
        self, manage: JobStarter, calls: Calls
    ) -> None:
        job = manage("n1 n2", env=calls.environment())
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("kill_agent n2")
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert job.placed() == ["n1", "n2", "n2"]
        assert list(calls) == []  # its node needs no replacement
        assert_no_step_after_the_next_attempts_first(job)
        assert_nothing_is_lost(job)

    @pytest.mark.full
    def test_an_agent_that_froze_is_given_up_after_a_lease_and_ended(
        self, manage: JobStarter
    ) -> None:
        job = manage("n1 n2")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("freeze_agent n2")
        job.wait_for_steps(attempt=1, ranks=2)
        assert job.finish().returncode == 0
        [lost] = job.events("agent_lost")
        assert lost["reason"] == "it has not been heard of"
        assert job.placed() == ["n1", "n2", "n2"]
        assert_no_step_after_the_next_attempts_first(job)
        assert_nothing_is_lost(job)

    @pytest.mark.full
    def test_a_training_that_was_in_a_collective_goes_on_without_a_charge(
        self, manage: JobStarter, scripts: Scripts
    ) -> None:
        job = manage("n1 n2 n3", script=scripts.write("gloo.py", GLOO))
        job.running.wait_for("attempt 0 has begun", 60)
        job.order("lose_node n2")
        job.running.wait_for("attempt 1 has begun", 60)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert (job.result["attempts"], job.result["restart_count"]) == (2, 0)


GLOO = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
finish = os.path.join(DIRECTORY, "finish")
step = 0
while True:
    total = torch.tensor([float(rank), float(os.path.exists(finish))])
    dist.all_reduce(total)
    assert total[0].item() == 1.0
    step += 1
    if step == 3 and rank == 0:
        say(f"attempt {attempt} has begun")
    if total[1].item():
        break
    time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.mark.full
class TestVerdicts:
    def test_node_excludes_the_node_and_takes_a_spare(
        self, manage: JobStarter, calls: Calls
    ) -> None:
        verdict = with_verdict(manage, "NODE_FAILOVER")
        job = manage("n1 n2 n3", verdict, env=calls.environment())
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7, attempt=0)
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        [replaced] = job.events("replacing")
        assert replaced["reason"] == "a verdict wants it replaced"
        assert len(list(calls)) == 1
        assert job.placed()[2:] == ["n3"]
        assert 81 in [event["exit_code"] for event in job.events("agent_ended")]

    def test_node_without_another_node_restarts_in_place(self, manage: JobStarter) -> None:
        job = manage("n1 n2", with_verdict(manage, "NODE_FAILOVER"))
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7, attempt=0)
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        [answer] = job.events("nodes_relaunched")
        [again] = job.events("restart_in_place")
        assert answer["ignored"] == [again["node"]]
        assert "is used again" in finished.stderr

    def test_a_relaunched_node_is_used_once_it_was_gone(
        self, manage: JobStarter, calls: Calls
    ) -> None:
        env = calls.environment() | {"BRINGS_THEM_BACK": "1"}
        job = manage("n1 n2", with_verdict(manage, "NODE_FAILOVER"), env=env)
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7, attempt=0)
        answer = job.wait_for_event("nodes_relaunched")
        [node] = answer["relaunched"]
        time.sleep(1.5)  # several looks of the manager, which must not take it for the new one
        assert len(job.placed()) == 2
        job.order(f"forget_node {node}")
        job.order(f"add_node {node}")
        job.wait_for_steps(attempt=1, ranks=2)
        assert job.finish().returncode == 0
        assert job.placed()[2:] == [node]

    def test_node_with_its_budget_spent_fails_with_83(self, manage: JobStarter) -> None:
        verdict = with_verdict(manage, "NODE_FAILOVER")
        job = manage("n1 n2 n3", verdict, "--max_node_relaunches=0")
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7)
        finished = job.finish_by_itself()
        assert finished.returncode == 83, finished
        assert job.result["exit_code"] == 83
        assert job.placed() == ["n1", "n2"]

    def test_too_many_lost_nodes_fail_the_job_with_83(self, manage: JobStarter) -> None:
        job = manage("n1 n2 n3", "--max_node_relaunches=0")
        job.wait_for_steps(attempt=0, ranks=2)
        job.order("lose_node n2")
        finished = job.finish_by_itself()
        assert finished.returncode == 83, finished
        assert "n2 has to be replaced" in job.result["reason"]

    def test_global_starts_all_of_them_again(self, manage: JobStarter) -> None:
        job = manage("n1 n2", with_verdict(manage, "GLOBAL_FAILOVER"))
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7, attempt=0)
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        assert (job.result["generation"], job.result["restart_count"]) == (1, 0)
        assert job.placed() == ["n1", "n2"]

    def test_abortion_ends_the_job_with_82(self, manage: JobStarter) -> None:
        job = manage("n1 n2 n3", with_verdict(manage, "ABORTION_FAILOVER"))
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=0, code=7)
        finished = job.finish_by_itself()
        assert finished.returncode == 82, finished
        assert (job.result["outcome"], job.result["strategy"]) == ("aborted", "ABORTION_FAILOVER")
        ended = [event["exit_code"] for event in job.events("agent_ended")]
        assert ended == [82, 82]

    def test_a_workers_failure_ends_the_job_with_its_own_code(self, manage: JobStarter) -> None:
        job = manage("n1 n2")
        job.wait_for_steps(attempt=0, ranks=2)
        job.fail(rank=1, code=7)
        finished = job.finish_by_itself()
        assert finished.returncode == 7, finished
        assert (job.result["outcome"], job.result["exit_code"]) == ("failed", 7)
        assert job.result["failure"]["workers"][0]["exit_code"] == 7
        assert job.result["verdict"]["rank"] == 1
        assert "dlrover-run: FAILED: rank 1 on " in finished.stderr
        assert [event["exit_code"] for event in job.events("agent_ended")] == [7, 7]


@pytest.mark.full
class TestEnding:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_to_the_manager_ends_everything(
        self, manage: JobStarter, signum: signal.Signals
    ) -> None:
        job = manage("n1 n2")
        job.wait_for_steps(attempt=0, ranks=2)
        job.running.signal(signum)
        finished = job.finish_by_itself()
        assert finished.returncode == 128 + signum, finished
        assert job.result["outcome"] == "signalled"
        assert {event["agent"] for event in job.events("agent_ended")} == {"n1.0", "n2.1"}

    def test_nothing_is_left_ten_seconds_after_the_manager_was_killed(
        self, manage: JobStarter
    ) -> None:
        job = manage("n1 n2", lease=5.0)
        job.wait_for_steps(attempt=0, ranks=2)
        killed = time.monotonic()
        job.running.kill()
        assert job.running.poll(10) == -signal.SIGKILL
        eventually(
            lambda: not descendants_and_orphans(job.running.token),
            10.0 - (time.monotonic() - killed),
            what="the end of all that the manager started",
        )

    def test_an_agent_that_cannot_start_fails_the_job_with_a_sentence(
        self, manage: JobStarter
    ) -> None:
        job = manage("n1 n2", command=["/no/such/python", "dlrover_run.py"])
        finished = job.finish_by_itself(20)
        assert finished.returncode == 127, finished
        assert "before it was heard of; can it start there?" in job.result["reason"]
        assert job.result["reason"] in finished.stderr
        assert job.placed() == ["n1", "n2"]

    def test_an_agent_that_is_refused_fails_the_job_with_its_own_words(
        self, manage: JobStarter
    ) -> None:
        job = manage("n1 n2", "--dynamic_failover_extension=no_such_module::Verdict")
        finished = job.finish_by_itself()
        assert finished.returncode == 2, finished
        assert "no_such_module" in finished.stderr
        assert len(job.placed()) == 2
