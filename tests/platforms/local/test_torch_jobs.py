"""Jobs of the engine torch: the launcher takes part in the job's run, and is stopped first."""

import json
import signal
import sys
from pathlib import Path

import pytest

from dlrover_cli.platforms.local.local_job import LocalJob
from dlrover_cli.platforms.local.process_tree import find_processes
from dlrover_cli.platforms.local.torch_engine import LocalTorchPlugin
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually
from tests.platforms.local.running_job import LocalJobs, LocalRun

pytestmark = pytest.mark.full  # real jobs, one after the other

TORCH = LocalTorchPlugin()


def job_of(run: LocalRun) -> LocalJob:
    assert isinstance(run.job, LocalJob)
    return run.job


class TestTheCommand:
    def test_every_setting_becomes_an_option(self, jobs: LocalJobs) -> None:
        run = jobs.generate(
            TORCH, script="train.py", args=["--lr", "0.1"], nproc_per_node=2, max_restarts=3
        )
        argv = job_of(run).argv
        assert argv[0] == sys.executable
        assert {"--nproc-per-node=2", "--max-restarts=3", "--redirects=3"} <= set(argv)
        assert argv[-4:] == ["--", "train.py", "--lr", "0.1"]

    @pytest.mark.parametrize("said", [{"redirects": "1"}, {"tee": "3"}, {"redirects": "0"}])
    def test_what_a_job_says_about_its_output_holds(
        self, jobs: LocalJobs, said: dict[str, str]
    ) -> None:
        argv = job_of(jobs.generate(TORCH, script="train.py", **said)).argv
        assert "--redirects=3" not in argv

    @pytest.mark.parametrize(
        "properties, variable, seconds",
        [
            ({}, None, 45),
            ({"shutdown_timeout": 5}, "100", 20),
            ({"shutdown-timeout": 300}, None, 315),
            ({"env": {"PET_SHUTDOWN_TIMEOUT": "9"}}, "100", 24),
            ({}, "60", 75),
            ({"env": {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}}, "60", 22),
            ({}, "soon", 45),
        ],
    )
    def test_the_launcher_has_longer_than_it_gives_its_workers(
        self,
        jobs: LocalJobs,
        monkeypatch: pytest.MonkeyPatch,
        properties: dict[str, object],
        variable: str | None,
        seconds: float,
    ) -> None:
        monkeypatch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
        if variable is not None:
            monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", variable)
        run = jobs.generate(TORCH, script="train.py", **properties)
        assert job_of(run).shutdown_timeout == seconds

    def test_what_a_config_file_says_holds(self, jobs: LocalJobs) -> None:
        (jobs.project / "sub").mkdir()
        (jobs.project / "sub" / "dlrover.toml").write_text("tee = 3\nshutdown_timeout = 100\n")
        job = job_of(jobs.generate(TORCH, script="train.py", cwd="sub"))
        assert "--redirects=3" not in job.argv
        assert job.shutdown_timeout == 115


class TestARun:
    def test_two_ranks_leave_their_output_events_and_result_in_the_run(
        self, jobs: LocalJobs
    ) -> None:
        (jobs.project / "sub").mkdir()
        (jobs.project / "sub" / "train.py").write_text(
            "import os, sys\n"
            "print('rank', os.environ['RANK'], os.getcwd(), os.environ['SAID'],\n"
            "      os.environ['DLROVER_RUN_ID'], os.environ.get('DLROVER_RUN'))\n"
            "print('oops', os.environ['RANK'], file=sys.stderr)\n"
        )
        run = jobs.start(
            TORCH, script="train.py", cwd="sub", nproc_per_node=2, env={"SAID": "hello"}
        )
        assert run.result.is_success
        (node,) = (run.directory / "nodes").iterdir()
        for rank in (0, 1):
            logs = node / "logs" / "attempt_0" / str(rank)
            words = f"{jobs.project}/sub hello {run.run_id} None"
            assert (logs / "stdout.log").read_text() == f"rank {rank} {words}\n"
            assert (logs / "stderr.log").read_text() == f"oops {rank}\n"
        result = json.loads((run.directory / "result.json").read_text())
        assert (result["outcome"], result["exit_code"]) == ("succeeded", 0)
        assert result["run_id"] == run.run_id
        assert (node / "events.jsonl").exists()
        run.cleanup()

    def test_stopping_it_lets_the_workers_end_in_good_order(self, jobs: LocalJobs) -> None:
        (jobs.project / "train.py").write_text(
            "import os, signal, subprocess, sys\n"
            "rank = os.environ['RANK']\n"
            "def save(*_): open(f'saved-{rank}', 'w').close(); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "helper = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "open(f'ready-{rank}', 'w').write(str(helper.pid))\n"
            "while True: signal.pause()\n"
        )
        run = jobs.start(TORCH, script="train.py", nproc_per_node=2)
        helpers = [_helper(jobs.project / f"ready-{rank}") for rank in (0, 1)]
        run_id = run.run_id
        assert len(find_processes(run_id)) >= 5
        run.stop()
        assert find_processes(run_id) == ()
        assert all((jobs.project / f"saved-{rank}").exists() for rank in (0, 1))
        assert not any(is_alive(pid) for pid in helpers)
        assert run.result.exit_code == 128 + signal.SIGTERM
        result = json.loads((run.directory / "result.json").read_text())
        assert result["outcome"] == "signalled"

    def test_a_launcher_that_was_killed_leaves_nothing_after_a_stop(self, jobs: LocalJobs) -> None:
        (jobs.project / "train.py").write_text(
            "import os, signal, subprocess\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "helper = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "open(f'ready-{os.environ[\"RANK\"]}', 'w').write(str(helper.pid))\n"
            "while True: signal.pause()\n"
        )
        run = jobs.start(TORCH, script="train.py", nproc_per_node=2)
        helpers = [_helper(jobs.project / f"ready-{rank}") for rank in (0, 1)]
        assert run.handler.main is not None
        run.handler.main.signal(signal.SIGKILL)
        assert run.result.exit_code == 128 + signal.SIGKILL
        run.job.job_context.stop_grace = 0.5
        assert run.elsewhere("stop") == "stopped"
        assert find_processes(run.run_id) == ()
        assert not any(is_alive(pid) for pid in helpers)


def _helper(path: Path) -> int:
    """The pid that a worker wrote once it was ready."""
    return int(eventually(lambda: path.exists() and path.read_text(), 60, what=f"{path.name}"))
