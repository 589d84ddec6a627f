"""kill -9 of whoever has a part in a run: nothing half-made stays, what is lost can be ended."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, Jobs, SubmittedRun, kill, pids_in, play, shell

DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open("daemon.part", "w") as file:
            file.write(str(os.getpid()))
        os.rename("daemon.part", "daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


def rewrite_events(run: SubmittedRun, old: str, new: str) -> None:
    text = run.files.events.read_text()
    assert old in text
    run.files.events.write_text(text.replace(old, new))


class TestTheSubmitter:
    """Its runs exist and end, or there is nothing of them."""

    def test_at_any_moment(self, jobs: Jobs) -> None:
        self.kill_many(jobs, number=6, seed=1)

    @pytest.mark.soak
    @pytest.mark.timeout(1800)
    def test_at_very_many_moments(self, jobs: Jobs) -> None:
        self.kill_many(jobs, number=300, seed=random.randrange(1 << 30))

    def kill_many(self, jobs: Jobs, *, number: int, seed: int) -> None:
        print("seed", seed)
        path = jobs.write(
            {"a": shell("echo a"), "b": shell("echo b", after=["a"]), "c": shell("echo c")}
        )
        moments = random.Random(seed)
        for turn in range(number):
            if turn % 5 == 0:  # the machine may be busier than it was, or less
                started = time.monotonic()
                assert jobs.start("submit", path).wait(PATIENCE) == 0
                usual = time.monotonic() - started
            submitter = jobs.start("submit", path)
            time.sleep(moments.uniform(0.4, 1.1) * usual)  # the moment is what is varied
            kill(submitter)
        self.assert_all_or_nothing(jobs)

    def assert_all_or_nothing(self, jobs: Jobs) -> None:
        def all_is_over() -> bool:
            listed = jobs.listed().values()
            return all(run["state"] in ("FINISHED", "LOST", "FAILED", "SKIPPED") for run in listed)

        eventually(all_is_over, PATIENCE, interval=0.2)
        assert set(jobs.listed()) == {run.run_id for run in jobs.existing()}
        listed = jobs.listed().values()
        assert {run["state"] for run in listed} == {"FINISHED"}
        submissions: dict[str, set[str]] = {}
        for run in listed:
            submissions.setdefault(run["submission"], set()).add(run["name"])
        assert all(names == {"a", "b", "c"} for names in submissions.values()), submissions
        for run in jobs.existing():
            assert not list(run.files.path.glob(".*")), run.files.path

    @pytest.mark.parametrize("words", [[], ["events.jsonl"]], ids=["nothing", "an empty journal"])
    def test_before_its_first_word(self, jobs: Jobs, words: list[str]) -> None:
        left = jobs.state / "runs" / "20200101-000000-abcdef"
        left.mkdir(parents=True, mode=0o700)
        for name in words:
            (left / name).touch()
        assert jobs.listed() == {}
        assert left.exists()  # it may be somebody's who is at work
        os.utime(left, (0, 0))
        assert jobs.listed() == {}
        assert not left.exists()


class TestTheRunner:
    def test_it_is_lost_and_what_it_left_can_be_stopped_and_removed(self, jobs: Jobs) -> None:
        (jobs.project / "daemon.py").write_text(DAEMON)
        run = jobs.submit_one(engine="python", properties={"script": "daemon.py"})
        eventually((jobs.project / "daemon").exists, PATIENCE)
        [daemon] = pids_in(jobs.project / "daemon")
        main = json.loads(run.files.handler.read_text())["process"]["pid"]
        pid = run.owner.pid
        run.kill_owner()
        listed = jobs.listed()[run.run_id]
        assert listed["state"] == "LOST"
        assert listed["reason"] == f"process {pid} is gone without a word"
        assert is_alive(main)
        assert is_alive(daemon)
        jobs.command("stop", "--grace=0.5", run.run_id)
        assert not is_alive(main)
        assert not is_alive(daemon)
        assert run.states[-3:] == ["LOST", "STOPPING", "KILLED"]
        assert run.result["outcome"] == "signalled"
        jobs.command("cleanup", run.run_id)
        assert not jobs.runs()
        assert jobs.listed() == {}

    @pytest.mark.parametrize("place", ["generate_job_resource", "submit_job", "wait"])
    def test_wherever_it_was_all_is_stopped_and_cleaned_up_once(
        self, jobs: Jobs, place: str
    ) -> None:
        run = jobs.submit_one(**play(**{place: "meet"}))
        jobs.meet(place)
        run.kill_owner()
        jobs.command("stop", run.run_id)
        assert run.states[-3:] == ["LOST", "STOPPING", "KILLED"]
        assert jobs.calls()[-2:] == ["stop_job", "cleanup_job"]
        assert jobs.calls().count("cleanup_job") == 1

    def test_while_it_stops_the_job(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", stop_job="meet"))
        run.wait_for(RunState.RUNNING)
        stop = jobs.start("stop", run.run_id)
        jobs.meet("stop_job")
        run.kill_owner()
        jobs.let_go("stop_job")
        assert stop.wait(PATIENCE) == 0  # it has done it itself
        assert run.states[-4:] == ["STOPPING", "LOST", "STOPPING", "KILLED"]
        assert jobs.calls().count("cleanup_job") == 1

    @pytest.mark.full
    def test_a_torch_job_s_launcher_and_workers_are_ended(self, jobs: Jobs) -> None:
        (jobs.project / "sleep.py").write_text(
            "import os, time\n"
            "open('worker.part', 'w').write(str(os.getpid()))\n"
            "os.rename('worker.part', 'worker')\n"
            "time.sleep(600)\n"
        )
        run = jobs.submit_one(engine="torch", properties={"script": "sleep.py"})
        eventually((jobs.project / "worker").exists, PATIENCE)
        [worker] = pids_in(jobs.project / "worker")
        run.kill_owner()
        jobs.command("stop", run.run_id)
        assert not is_alive(worker)
        assert run.story.state is RunState.KILLED

    def test_after_a_restart_of_the_host(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end"))
        run.wait_for(RunState.RUNNING)
        owner = run.owner
        run.kill_owner()
        rewrite_events(run, owner.boot_id, "00000000-0000-4000-8000-000000000000")
        listed = jobs.listed()[run.run_id]
        assert (listed["state"], listed["reason"]) == ("LOST", f"{owner.host} was restarted")
        jobs.command("cleanup", run.run_id)
        assert not jobs.runs()

    def test_one_of_another_host_is_left_alone(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end"))
        run.wait_for(RunState.RUNNING)
        owner = run.owner
        run.kill_owner()
        rewrite_events(run, f'"host": "{owner.host}"', '"host": "far-away"')
        assert jobs.listed()[run.run_id]["state"] == "RUNNING"
        for options in ((), ("--no-wait",)):
            refused = jobs.command("stop", *options, run.run_id, check=False)
            assert refused.returncode == 1
            assert f"process {owner.pid} of far-away owns the run" in refused.stderr
            assert f"on far-away: dlrover-job stop {run.run_id}" in refused.stderr
            assert "is still RUNNING" in refused.stdout
        rewrite_events(run, '"host": "far-away"', f'"host": "{owner.host}"')
        jobs.command("stop", run.run_id)


class TestTheStopper:
    def test_the_next_one_takes_over_from_it(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", stop_job="meet"))
        run.wait_for(RunState.RUNNING)
        run.kill_owner()
        first = jobs.start("stop", run.run_id)
        jobs.meet("stop_job")
        assert run.owner.pid == first.pid
        kill(first)
        jobs.let_go("stop_job")
        assert jobs.listed()[run.run_id]["state"] == "LOST"
        jobs.command("stop", run.run_id)
        assert run.states[-4:] == ["STOPPING", "LOST", "STOPPING", "KILLED"]
        assert jobs.calls().count("cleanup_job") == 1

    def test_a_second_one_does_not_disturb_it(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", stop_job="meet"))
        run.wait_for(RunState.RUNNING)
        run.kill_owner()
        first = jobs.start("stop", run.run_id)
        jobs.meet("stop_job")
        jobs.command("stop", "--no-wait", run.run_id)
        jobs.let_go("stop_job")
        assert first.wait(PATIENCE) == 0
        assert run.story.state is RunState.KILLED
        assert jobs.calls().count("stop_job") == 1

    def test_what_it_did_not_clean_up_is_still_owed(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", cleanup_job="meet"))
        run.wait_for(RunState.RUNNING)
        run.kill_owner()
        first = jobs.start("stop", run.run_id)
        jobs.meet("cleanup_job")
        kill(first)
        assert jobs.listed()[run.run_id]["state"] == "KILLED"
        jobs.let_go("cleanup_job")
        jobs.command("cleanup", run.run_id)
        assert jobs.calls().count("cleanup_job") == 2  # the first one was killed on the way
        assert not jobs.runs()

    def test_of_two_one_does_it_and_the_other_waits(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end"))
        run.wait_for(RunState.RUNNING)
        run.kill_owner()
        stops = [jobs.start("stop", run.run_id) for _ in range(2)]
        codes = [stop.wait(PATIENCE) for stop in stops]
        assert run.story.state is RunState.KILLED, codes
        assert codes == [0, 0]
        assert jobs.calls().count("cleanup_job") == 1


def test_a_runner_that_cannot_even_start_is_lost_and_its_log_says_why(jobs: Jobs) -> None:
    (jobs.project / "broken").mkdir()
    (jobs.project / "broken" / "dlrover_cli.py").write_text("raise SystemExit('broken on purpose')")
    path = jobs.write({"a": shell(":")})
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from dlrover_cli.jobs.submission import submit\n"
        f"environ = {{**os.environ, 'PYTHONPATH': {str(jobs.project / 'broken')!r}}}\n"
        f"submit(Path({str(path)!r}), environ, print)\n"
    )
    (jobs.project / "submit.py").write_text(code)
    subprocess.run([sys.executable, "submit.py"], cwd=jobs.project, env=jobs.environ, check=True)
    [run] = jobs.runs()
    run.ended()
    assert jobs.listed()[run.run_id]["state"] == "LOST"
    assert "broken on purpose" in run.log
    jobs.command("cleanup", run.run_id)
