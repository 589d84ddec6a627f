"""`dlrover-run` in the foreground is a run as well: listed, stopped and removed as any other."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.harness.launcher import Running
from tests.harness.processes import is_alive
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, assert_private

Start = Callable[..., Running]

WAY = ["PENDING", "STARTING", "RUNNING"]


@pytest.fixture
def begin(start: Start, jobs: Jobs) -> Start:
    """Start `dlrover-run` in the project, with the state directory of the jobs."""

    def begin(*argv: object) -> Running:
        return start(argv, cwd=jobs.project, env={"XDG_STATE_HOME": str(jobs.home / "state")})

    return begin


@pytest.fixture
def waiting(scripts: Scripts) -> Path:
    return scripts.write("waiting.py", "leave('start')\ntime.sleep(600)\n")


def only(jobs: Jobs) -> SubmittedRun:
    [run] = jobs.runs()
    return run


def test_it_is_listed_while_it_runs_and_stopped_like_any_other(
    begin: Start, jobs: Jobs, scripts: Scripts, waiting: Path
) -> None:
    running = begin("--nproc-per-node=2", waiting)
    running.wait_for(lambda _: len(scripts.facts("start")) == 2)
    run = only(jobs)
    listed = jobs.listed()[run.run_id]
    assert (listed["state"], listed["name"]) == ("RUNNING", "waiting")
    assert run.owner.pid == running.pid
    assert jobs.command("cleanup", run.run_id, check=False).returncode == 2
    assert "is stopped" in jobs.command("stop", run.run_id).stdout
    assert running.finish().returncode == 143
    assert run.states == [*WAY, "STOPPING", "KILLED"]
    assert (run.result["outcome"], run.result["exit_code"]) == ("signalled", 143)
    assert jobs.listed()[run.run_id]["state"] == "KILLED"
    assert_private(jobs.state)
    jobs.command("cleanup", run.run_id)
    assert not jobs.runs()


@pytest.fixture
def slow_to_end(scripts: Scripts) -> Path:
    """Takes two seconds to end in good order."""
    return scripts.write(
        "slow_to_end.py",
        """
        import signal
        def end(*_):
            time.sleep(2)
            leave("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        leave("start")
        time.sleep(600)
        """,
    )


def test_whoever_stops_it_may_give_its_workers_more_time_than_its_settings(
    begin: Start, jobs: Jobs, scripts: Scripts, slow_to_end: Path
) -> None:
    running = begin("--shutdown-timeout=0", slow_to_end)
    running.wait_for(lambda _: scripts.facts("start"))
    jobs.command("stop", "--grace=60", only(jobs).run_id)
    assert running.finish().returncode == 143
    assert scripts.facts("saved")


def test_whoever_stops_it_may_give_its_workers_less_time_than_its_settings(
    begin: Start, jobs: Jobs, scripts: Scripts, slow_to_end: Path
) -> None:
    running = begin("--shutdown-timeout=600", slow_to_end)
    running.wait_for(lambda _: scripts.facts("start"))
    jobs.command("stop", "--grace=0", only(jobs).run_id)
    assert running.finish().returncode == 143
    assert not scripts.facts("saved")
    assert only(jobs).states == [*WAY, "STOPPING", "KILLED"]


@pytest.mark.parametrize(
    "code, state, reason",
    [(0, "FINISHED", "every worker succeeded"), (3, "FAILED", "rank 0 exited with code 3")],
)
def test_its_end_is_recorded(
    begin: Start, jobs: Jobs, scripts: Scripts, code: int, state: str, reason: str
) -> None:
    running = begin(scripts.write("end.py", "sys.exit(CODE)", CODE=code))
    assert running.finish().returncode == code
    run = only(jobs)
    assert run.states == [*WAY, state]
    listed = jobs.listed()[run.run_id]
    assert (listed["state"], listed["exit_code"]) == (state, code)
    assert listed["reason"].startswith(reason)


@pytest.mark.full
def test_ctrl_c_ends_it_as_killed(
    begin: Start, jobs: Jobs, scripts: Scripts, waiting: Path
) -> None:
    running = begin(waiting)
    running.wait_for(lambda _: scripts.facts("start"))
    running.signal(signal.SIGINT)
    assert running.finish().returncode == 130
    assert only(jobs).states[-1] == "KILLED"
    assert only(jobs).story.exit_code == 130


def test_killed_it_is_lost_and_what_it_left_can_be_removed(
    begin: Start, jobs: Jobs, scripts: Scripts
) -> None:
    """Its workers die with it; what they have put into the background does not."""
    script = scripts.write(
        "daemon.py",
        """
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        leave("start", child=child.pid)
        time.sleep(600)
        """,
    )
    running = begin(script)
    running.wait_for(lambda _: scripts.facts("start"))
    [facts] = scripts.facts("start")
    running.kill()
    running.finish()
    run = only(jobs)
    listed = jobs.listed()[run.run_id]
    assert listed["state"] == "LOST"
    assert listed["reason"] == f"process {running.pid} is gone without a word"
    eventually(lambda: not is_alive(facts["pid"]), PATIENCE)
    jobs.command("stop", "--grace=1", run.run_id)
    assert not is_alive(facts["child"])
    assert run.states == [*WAY, "LOST", "STOPPING", "KILLED"]
    jobs.command("cleanup", run.run_id)
    assert not jobs.runs()


def test_a_node_that_replaces_itself_stays_the_same_run(
    begin: Start, jobs: Jobs, scripts: Scripts
) -> None:
    (jobs.project / "verdicts.py").write_text(
        "from dlrover.python.common.enums import FailoverStrategy\n"
        "from dlrover.python.elastic_agent.torch.dynamic_failover import (\n"
        "    DynamicAgentFailoverExtension)\n"
        "class Node(DynamicAgentFailoverExtension):\n"
        "    def get_user_failover_strategy(self, info):\n"
        "        return FailoverStrategy.NODE_FAILOVER\n"
    )
    script = scripts.write(
        "once.py",
        """
        leave("start")
        if attempt == 0:
            sys.exit(3)
        while not os.path.exists(os.path.join(DIRECTORY, "go")):
            time.sleep(0.01)
        """,
    )
    running = begin("--dynamic_failover_extension=verdicts::Node", script)
    running.wait_for(lambda _: len(scripts.facts("start")) == 2, PATIENCE)
    run = only(jobs)
    assert (run.owner.pid, run.kinds.count("owned")) == (running.pid, 1)
    assert jobs.listed()[run.run_id]["state"] == "RUNNING"
    (scripts.directory / "go").touch()
    assert running.finish().returncode == 0
    assert run.states == [*WAY, "FINISHED"]
    assert run.story.state is RunState.FINISHED
    assert len(jobs.listed()) == 1


def test_its_time_is_the_same_wherever_it_is_told(
    begin: Start, jobs: Jobs, scripts: Scripts
) -> None:
    """It begins when its launcher does, which has to load before it can tell anything."""
    assert begin(scripts.write("short.py", "pass\n")).finish().returncode == 0
    run = only(jobs)
    listed = jobs.listed()[run.run_id]
    told = json.loads(jobs.command("why", "-o", "json", run.run_id).stdout)
    assert listed["submitted"] == listed["started"] == run.result["started"]
    assert listed["started"] < run.events[0]["time"]
    assert [told["launches"][0][key] for key in ("started", "ended")] == [
        listed["started"],
        listed["ended"],
    ]
    assert told["costs"]["wall"] == pytest.approx(listed["ended"] - listed["started"])
