"""A run's life with a real runner: its states in order, those that it comes after, and stopping."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.harness.waiting import eventually
from tests.jobs.submitted import Jobs, assert_private, play, shell

GOOD = ["PENDING", "STARTING", "RUNNING", "FINISHED"]
BAD = ["PENDING", "STARTING", "RUNNING", "FAILED"]


def abort(project: Path) -> dict[str, Any]:
    (project / "verdicts.py").write_text(
        "from dlrover.python.elastic_agent.torch.dynamic_failover import (\n"
        "    DynamicAgentFailoverExtension)\n"
        "from dlrover.python.common.enums import FailoverStrategy\n"
        "class Abort(DynamicAgentFailoverExtension):\n"
        "    def get_user_failover_strategy(self, info):\n"
        "        return FailoverStrategy.ABORTION_FAILOVER\n"
    )
    return {"dynamic_failover_extension": "verdicts::Abort"}


class TestStates:
    def test_a_command_that_succeeds(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**shell("echo hello"))
        run.ended()
        assert run.states == GOOD
        assert run.kinds == [
            *("submitted", "owned", "state", "state", "state"),
            *("cleaning", "cleaned"),
        ]
        assert run.story.exit_code == 0
        assert run.result["outcome"] == "succeeded"
        assert (run.result["exit_code"], run.result["run_id"]) == (0, run.run_id)
        assert run.result["started"] <= run.result["ended"]
        assert jobs.listed()[run.run_id]["state"] == "FINISHED"
        assert_private(jobs.state)

    @pytest.mark.parametrize(
        "command, code, reason",
        [("exit 3", 3, "exited with code 3"), ("kill -9 $$", 137, "killed by SIGKILL")],
    )
    def test_a_command_that_fails_keeps_its_code(
        self, jobs: Jobs, command: str, code: int, reason: str
    ) -> None:
        run = jobs.submit_one(**shell(command))
        run.ended()
        assert run.states == BAD
        assert (run.story.exit_code, run.story.reason) == (code, reason)
        assert (run.result["outcome"], run.result["exit_code"]) == ("failed", code)
        assert jobs.listed()[run.run_id]["exit_code"] == code

    def test_a_python_script(self, jobs: Jobs) -> None:
        (jobs.project / "hello.py").write_text("import sys; print('hi'); sys.exit(4)")
        run = jobs.submit_one(engine="python", properties={"script": "hello.py"})
        run.ended()
        assert run.states == BAD
        assert run.story.exit_code == 4
        assert "hi" in jobs.command("logs", run.run_id).stdout

    def test_a_torch_job_keeps_its_launcher_s_result(self, jobs: Jobs) -> None:
        (jobs.project / "hello.py").write_text("print('hi')")
        run = jobs.submit_one(
            engine="torch", properties={"script": "hello.py", "nproc_per_node": 2}
        )
        run.ended()
        assert run.states == GOOD, run.log
        assert run.story.reason == run.result["reason"] == "every worker succeeded"
        assert run.result["argv"][-1] == "hello.py"
        assert_private(jobs.state)

    def test_a_torch_job_that_its_launcher_refuses_says_why(self, jobs: Jobs) -> None:
        run = jobs.submit_one(engine="torch", properties={"script": "nowhere.py"})
        run.ended()
        assert run.states == BAD, run.log
        assert (run.story.exit_code, run.story.reason) == (2, "there is no script 'nowhere.py'")
        assert (run.result["outcome"], run.result["reason"]) == ("refused", run.story.reason)
        assert_private(jobs.state)

    def test_a_torch_job_that_is_aborted_ends_with_82(self, jobs: Jobs) -> None:
        (jobs.project / "crash.py").write_text("raise SystemExit(5)")
        properties = {"script": "crash.py", "max_restarts": 3, **abort(jobs.project)}
        run = jobs.submit_one(engine="torch", properties=properties)
        run.ended()
        assert run.states == BAD, run.log
        assert run.story.exit_code == 82
        assert (run.result["outcome"], run.result["exit_code"]) == ("aborted", 82)
        assert run.story.reason == run.result["reason"]

    @pytest.mark.full
    def test_a_killed_launcher_of_a_torch_job_fails_the_run_and_leaves_nobody(
        self, jobs: Jobs
    ) -> None:
        (jobs.project / "sleep.py").write_text(
            "import os, time; open('worker', 'w').write(str(os.getpid())); time.sleep(600)"
        )
        run = jobs.submit_one(engine="torch", properties={"script": "sleep.py"})
        eventually((jobs.project / "worker").exists, 60)
        launcher = json.loads(run.files.handler.read_text())["process"]["pid"]
        assert launcher != run.owner.pid
        os.kill(launcher, signal.SIGKILL)
        run.ended()
        assert run.states == BAD, run.log
        assert (run.story.exit_code, run.result["exit_code"]) == (137, 137)


def test_what_nobody_acts_on_is_said_to_have_no_effect(jobs: Jobs) -> None:
    path = jobs.project / "jobs.yaml"
    path.write_text(
        "one:\n  engine: cmd_line\n  queue: night\n  priority: 5\n  resources: {cpu: 1}\n"
        "  properties: {command: ['true']}\n"
        "two: {engine: cmd_line, priority: 0, properties: {command: ['true']}}\n"
    )
    submitted = jobs.command("submit", "--wait", path)
    assert submitted.stderr.splitlines()[:3] == [
        f"{path}:3: without --extender, the job does not wait in queue 'night'",
        f"{path}:4: without --extender, priority 5 has no effect: the job waits for no other",
        (
            f"{path}:5: without --extender, resources have no effect: "
            "the job starts whether they are free or not"
        ),
    ]
    assert [line.rpartition(") ")[2] for line in submitted.stderr.splitlines()[3:]] == [
        "is FINISHED, exit 0",
        "is FINISHED, exit 0",
    ]


def test_a_plugin_that_acts_on_them_itself_needs_no_such_words(jobs: Jobs) -> None:
    (jobs.project / "placing.py").write_text(
        "from scripted_plugin import PlayPlugin\n"
        "class Placing(PlayPlugin):\n"
        "    honours_queue = honours_priority = honours_resources = True\n"
    )
    job = {**play(), "plugin": "placing::Placing", "queue": "night", "priority": 5}
    path = jobs.write({"one": {**job, "resources": {"cpu": 1}}})
    [line] = jobs.command("submit", "--wait", path).stderr.splitlines()
    assert line.endswith("is FINISHED, exit 0")


class TestAfter:
    def test_each_starts_when_those_before_have_finished(self, jobs: Jobs) -> None:
        a, b, c = jobs.submit(
            a=shell("echo a >> order"),
            b=shell("echo b >> order", after=["a"]),
            c=shell("echo c >> order", after=["a", "b"]),
        )
        c.ended()
        assert (jobs.project / "order").read_text().split() == ["a", "b", "c"]
        assert a.states == b.states == c.states == GOOD

    def test_a_failure_skips_all_that_follow(self, jobs: Jobs) -> None:
        a, b, c = jobs.submit(a=shell("exit 1"), b=shell(":", after=["a"]), c=play())
        _, d = jobs.submit(x=shell("exit 1"), d={**play(), "after": ["x"]})
        for run in (a, b, c, d):
            run.ended()
        assert b.states == d.states == ["PENDING", "SKIPPED"]
        assert b.story.reason == f"run {a.run_id}, which it comes after, is FAILED"
        assert not b.files.result.exists()
        assert jobs.calls().count("cleanup_job") == 2  # of c, and of d, which was never started

    def test_one_before_that_is_stopped_or_lost_skips(self, jobs: Jobs) -> None:
        a, b, c = jobs.submit(
            a=play(wait="meet"), b={**play(), "after": ["a"]}, c={**play(), "after": ["b"]}
        )
        a.wait_for(RunState.RUNNING)
        jobs.command("stop", a.run_id)
        assert (b.ended().state, c.ended().state) == (RunState.SKIPPED, RunState.SKIPPED)
        assert b.story.reason.endswith("is KILLED")
        assert c.story.reason.endswith("is SKIPPED")

        a, b = jobs.submit(a=play(wait="until_end"), b={**play(), "after": ["a"]})
        a.wait_for(RunState.RUNNING)
        a.kill_owner()
        assert b.ended().state is RunState.SKIPPED
        assert b.story.reason.endswith("is LOST")
        jobs.command("stop", a.run_id)

    def test_what_another_waits_for_is_not_removed(self, jobs: Jobs) -> None:
        a, b, c = jobs.submit(a=play(), b=play(wait="meet"), c={**play(), "after": ["b", "a"]})
        a.ended()
        b.wait_for(RunState.RUNNING)
        refused = jobs.command("cleanup", a.run_id, check=False)
        assert refused.returncode != 0
        assert f"run {c.run_id} comes after" in refused.stderr
        jobs.let_go("wait")
        assert c.ended().state is RunState.FINISHED
        jobs.command("cleanup", a.run_id)
        assert not a.files.path.exists()

    def test_nothing_can_come_after_a_periodic_job(self, jobs: Jobs) -> None:
        path = jobs.write(
            {
                "tick": {**play(), "periodic_config": {"interval": 3600}},
                "tock": {**play(), "after": ["tick"]},
            }
        )
        refused = jobs.command("submit", path, check=False)
        assert refused.returncode == 2
        assert "'tock' could never start" in refused.stderr
        assert "jobs.yaml:1" in refused.stderr
        assert not jobs.runs()


class TestStopping:
    @pytest.mark.parametrize("place", ["generate_job_resource", "submit_job", "wait"])
    def test_wherever_it_is_it_is_killed_and_cleaned_up(self, jobs: Jobs, place: str) -> None:
        run = jobs.submit_one(**play(**{place: "meet"}))
        jobs.meet(place)
        stop = jobs.start("stop", run.run_id)
        if place == "submit_job":  # not interrupted: nobody would know of what it starts
            eventually(run.files.stop_request.exists)
            jobs.let_go(place)
        assert stop.wait(60) == 0
        run.ended()
        assert run.states[-2:] == ["STOPPING", "KILLED"]
        assert (run.story.exit_code, run.story.reason) == (143, "stopped")
        assert jobs.calls().count("cleanup_job") == 1
        was_submitted = place != "generate_job_resource"
        assert jobs.calls().count("stop_job") == int(was_submitted)
        assert jobs.calls()[-1] == "cleanup_job"
        assert (run.result["outcome"], run.result["exit_code"]) == ("signalled", 143)

    def test_while_it_waits_for_another(self, jobs: Jobs) -> None:
        first, second = jobs.submit(a=play(wait="meet"), b={**play(), "after": ["a"]})
        first.wait_for(RunState.RUNNING)
        jobs.command("stop", second.run_id)
        second.ended()
        assert second.states == ["PENDING", "STOPPING", "KILLED"]
        assert first.story.state is RunState.RUNNING
        assert jobs.calls().count("cleanup_job") == 1

    def test_while_it_waits_for_its_time(self, jobs: Jobs) -> None:
        run = jobs.submit_one(
            **play(), periodic_config={"interval": "1h", "start_date": "9000-01-01T00:00:00"}
        )
        jobs.command("stop", run.run_id)
        assert run.states == ["PENDING", "STOPPING", "KILLED"]
        run.ended()
        assert jobs.calls() == ["generate", "cleanup_job"]

    def test_at_once_after_it_was_submitted(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="meet"))
        jobs.command("stop", "--no-wait", run.run_id)
        run.ended()
        assert run.states[-2:] == ["STOPPING", "KILLED"], run.log

    def test_a_second_stop_waits_for_the_first(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", stop_job="meet"))
        run.wait_for(RunState.RUNNING)
        stops = [jobs.start("stop", run.run_id)]
        jobs.meet("stop_job")
        stops.append(jobs.start("stop", run.run_id))
        owner = run.owner
        eventually(
            lambda: json.loads(run.files.stop_request.read_text())["by"]["pid"] == stops[1].pid
        )
        jobs.let_go("stop_job")
        assert [stop.wait(60) for stop in stops] == [0, 0]
        assert run.owner == owner
        assert jobs.calls().count("stop_job") == 1
        assert run.kinds.count("stop_requested") == 1

    def test_what_is_over_is_left_alone(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play())
        run.ended()
        before = run.events
        assert "was over already: FINISHED" in jobs.command("stop", run.run_id).stdout
        assert run.events == before

    def test_grace_reaches_the_plugin(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end"))
        run.wait_for(RunState.RUNNING)
        jobs.command("stop", "--grace=2.5", run.run_id)
        assert "grace 2.5" in jobs.noted()
        [request] = [each["data"] for each in run.events if each["kind"] == "stop_requested"]
        assert request["grace"] == 2.5
        assert_private(run.files.path)

    def test_grace_ends_a_job_that_ignores_sigterm(self, jobs: Jobs) -> None:
        (jobs.project / "deaf.py").write_text(
            "import signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "open('on', 'w')\n"
            "time.sleep(600)\n"
        )
        run = jobs.submit_one(engine="python", properties={"script": "deaf.py"})
        eventually((jobs.project / "on").exists, 30)
        jobs.command("stop", "--grace=0.2", run.run_id, timeout=20)
        assert run.states[-2:] == ["STOPPING", "KILLED"]

    @pytest.mark.full
    def test_grace_is_what_the_launcher_of_a_torch_job_gives_its_workers(self, jobs: Jobs) -> None:
        (jobs.project / "slow.py").write_text(
            "import signal, sys, time\n"
            "def end(*_):\n"
            "    time.sleep(2)\n"
            "    open('saved', 'w')\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "open('on', 'w')\n"
            "time.sleep(600)\n"
        )
        properties = {"script": "slow.py", "standalone": True, "shutdown_timeout": 0}
        run = jobs.submit_one(engine="torch", properties=properties)
        eventually((jobs.project / "on").exists, 60)
        jobs.command("stop", "--grace=60", run.run_id)
        assert (jobs.project / "saved").exists()
        assert run.states[-2:] == ["STOPPING", "KILLED"]

    @pytest.mark.full
    def test_grace_ends_an_owner_that_does_not_react(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="stuck"))
        jobs.meet("wait")
        stopped = jobs.command("stop", "--grace=0", run.run_id)
        assert "is stopped" in stopped.stdout
        assert run.states[-4:] == ["RUNNING", "LOST", "STOPPING", "KILLED"]

    def test_an_owner_that_somebody_has_suspended_is_woken_for_it(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**shell("exec sleep 600"))
        run.wait_for(RunState.RUNNING)
        assert run.owner.signal(signal.SIGSTOP)
        stopped = jobs.command("stop", run.run_id)
        assert "is stopped" in stopped.stdout
        assert run.states[-3:] == ["RUNNING", "STOPPING", "KILLED"]

    @pytest.mark.parametrize("is_owned", [True, False])
    def test_a_job_document_that_cannot_be_read_any_more_is_no_obstacle(
        self, jobs: Jobs, is_owned: bool
    ) -> None:
        run = jobs.submit_one(**shell("sleep 600 & wait"))
        run.wait_for(RunState.RUNNING)
        run.files.job.write_text("{")
        if not is_owned:
            run.kill_owner()
        stopped = jobs.command("stop", run.run_id)
        assert "is stopped" in stopped.stdout
        assert "what the ledger knows of the run has to do" in stopped.stderr
        assert run.ended().state is RunState.KILLED
        assert "removed" in jobs.command("cleanup", run.run_id).stdout
        assert not run.files.path.exists()

    def test_a_plugin_that_swallows_the_request_is_stopped_all_the_same(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="deaf"))
        jobs.meet("wait")
        jobs.command("stop", run.run_id)
        assert run.states[-2:] == ["STOPPING", "KILLED"]

    def test_all_of_a_command_s_processes_go(self, jobs: Jobs) -> None:
        run = jobs.submit_one(
            **shell(f"{sys.executable} -c 'import time; time.sleep(600)' & setsid sleep 600 & wait")
        )
        run.wait_for(RunState.RUNNING)
        jobs.command("stop", run.run_id)
        run.ended()
        assert run.story.state is RunState.KILLED
