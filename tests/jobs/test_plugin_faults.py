"""Plugins that raise, exit or answer nonsense: the run ends, says why, and is cleaned up once."""

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.jobs.submitted import Jobs, play

pytestmark = pytest.mark.full  # real jobs, one after the other


class TestWhatFails:
    @pytest.mark.parametrize("action", ["raise", "exit", "wrong"])
    def test_generate_refuses_the_submission_and_leaves_nothing(
        self, jobs: Jobs, action: str
    ) -> None:
        refused = jobs.command("submit", jobs.write({"a": play(generate=action)}), check=False)
        assert refused.returncode == 2
        assert "generate of the plugin for 'a'" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not jobs.runs()

    @pytest.mark.parametrize(
        "method, action, reason",
        [
            ("generate_job_resource", "raise", "generate_job_resource raised RuntimeError: no "),
            ("submit_job", "raise", "submit_job raised RuntimeError: no submit_job today"),
            ("submit_job", "exit", "submit_job raised sys.exit(7)"),
            ("submit_job", "wrong", "submit_job returned a int and not an AbstractJobHandler"),
            ("handler", "no_json", "submit_job returned what cannot be kept: PlayHandler.file"),
            ("wait", "raise", "the handler's wait raised RuntimeError: no wait today"),
            ("wait", "wrong", "the handler's wait returned 0 and not a JobResult"),
        ],
    )
    def test_the_run_fails_with_the_sentence(
        self, jobs: Jobs, method: str, action: str, reason: str
    ) -> None:
        run = jobs.submit_one(**play(**{method: action}))
        run.ended()
        assert run.states[-1] == "FAILED"
        assert run.story.reason.startswith(reason)
        assert run.story.exit_code == 1
        assert (run.result["outcome"], run.result["reason"]) == ("failed", run.story.reason)
        assert jobs.calls().count("cleanup_job") == 1
        # What was submitted may run, whatever its plugin has said about it since.
        was_submitted = method in ("wait", "handler") or action == "wrong"
        assert jobs.calls().count("stop_job") == int(was_submitted)
        assert run.story.is_cleaned

    def test_a_handler_that_looks_instead_of_waiting_is_asked_again(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="looks"))
        run.ended()
        assert run.story.state is RunState.FINISHED

    def test_what_the_plugin_raised_is_in_the_runner_s_log(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(submit_job="raise"))
        run.ended()
        assert "Traceback" in run.log
        assert "scripted_plugin.py" in run.log

    def test_a_plugin_that_is_gone_fails_the_run_which_can_be_removed(self, jobs: Jobs) -> None:
        first, second = jobs.submit(a=play(wait="until_end"), b={**play(), "after": ["a"]})
        first.wait_for(RunState.RUNNING)
        second.kill_owner()
        (jobs.project / "scripted_plugin.py").unlink()
        jobs.end_job()
        first.ended()
        assert jobs.listed()[second.run_id]["state"] == "LOST"
        jobs.command("stop", second.run_id)
        assert second.states[-3:] == ["LOST", "STOPPING", "KILLED"]
        jobs.command("cleanup", first.run_id, second.run_id)
        assert not jobs.runs()


class TestStopJobThatRaises:
    def test_the_run_is_lost_and_not_cleaned_up_under_a_living_job(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="until_end", stop_job="raise_once"))
        run.wait_for(RunState.RUNNING)
        failed = jobs.command("stop", "--no-wait", run.run_id)
        run.ended()
        assert run.states[-2:] == ["STOPPING", "LOST"], failed
        assert run.story.reason.startswith("stop_job raised RuntimeError: no stop_job today")
        assert "cleanup_job" not in jobs.calls()
        jobs.command("stop", run.run_id)
        assert run.states[-3:] == ["LOST", "STOPPING", "KILLED"]
        assert jobs.calls()[-2:] == ["stop_job", "cleanup_job"]

    def test_also_when_it_was_only_asked_because_wait_has_raised(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(wait="raise", stop_job="raise"))
        run.ended()
        assert run.states[-2:] == ["RUNNING", "LOST"]
        assert "cleanup_job" not in jobs.calls()
        again = jobs.command("stop", run.run_id, check=False)
        assert again.returncode == 1
        assert "is LOST: stop_job raised RuntimeError" in again.stdout
        assert "Traceback" not in again.stderr
        refused = jobs.command("cleanup", run.run_id, check=False)
        assert refused.returncode == 1
        assert run.files.path.exists()

    def test_whoever_stops_several_is_not_stopped_by_trying_again(self, jobs: Jobs) -> None:
        runs = jobs.submit(a=play(wait="raise", stop_job="raise"), b=play())
        for run in runs:
            run.ended()
        again = jobs.command("stop", *(run.run_id for run in runs), check=False)
        assert again.returncode == 1, again
        assert "is LOST: stop_job raised" in again.stdout
        assert "was over already: FINISHED" in again.stdout


class TestCleanup:
    def test_a_failure_does_not_change_how_the_job_ended(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(cleanup_job="raise_once"))
        run.ended()
        assert run.story.state is RunState.FINISHED
        assert not run.story.is_cleaned
        assert run.kinds[-2:] == ["cleaning", "cleaning_failed"]
        jobs.command("cleanup", run.run_id)
        assert jobs.calls().count("cleanup_job") == 2
        assert not run.files.path.exists()
        assert run.run_id not in jobs.rows()

    def test_a_plugin_that_cannot_clean_up_keeps_its_run(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(cleanup_job="exit"))
        run.ended()
        refused = jobs.command("cleanup", run.run_id, check=False)
        assert refused.returncode == 1
        assert "its plugin could not clean up" in refused.stderr
        assert run.files.path.exists()

    def test_removing_waits_for_the_runner_that_cleans_up(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(cleanup_job="meet"))
        jobs.meet("cleanup_job")
        assert run.story.state is RunState.FINISHED
        remove = jobs.start("cleanup", run.run_id)
        jobs.let_go("cleanup_job")
        assert remove.wait(60) == 0
        assert jobs.calls().count("cleanup_job") == 1
        assert not run.files.path.exists()

    def test_it_is_done_again_only_for_one_who_was_killed_on_the_way(self, jobs: Jobs) -> None:
        run = jobs.submit_one(**play(cleanup_job="meet"))
        jobs.meet("cleanup_job")
        run.kill_owner()
        jobs.let_go("cleanup_job")
        assert jobs.listed()[run.run_id]["state"] == "FINISHED"
        jobs.command("cleanup", run.run_id)
        assert jobs.calls().count("cleanup_job") == 2
        assert not run.files.path.exists()

    def test_what_a_killed_cleanup_has_left_goes_with_the_next(self, jobs: Jobs) -> None:
        first, second = jobs.submit(a=play(), b=play())
        first.ended()
        second.ended()
        first.files.path.rename(first.files.path.with_name(f".removed-{first.run_id}"))
        assert list(jobs.listed()) == [second.run_id]
        jobs.command("cleanup", second.run_id)
        assert not list((jobs.state / "runs").iterdir())
