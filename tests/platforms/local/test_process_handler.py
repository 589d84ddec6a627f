"""Waiting for a job's process: as its parent, as somebody else, and after its parent was killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.jobs import JobResult
from dlrover_cli.contracts.jsonable import decode, encode
from dlrover_cli.platforms.local.command_engine import LocalCommandPlugin
from dlrover_cli.platforms.local.process_handler import LocalProcessHandler
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.harness.waiting import eventually
from tests.platforms.local.running_job import LocalJobs

COMMAND = LocalCommandPlugin()
UNTIL_TOLD = 'while ! [ -e "$0" ]; do sleep 0.02; done; exit 7'


def copy_of(handler: LocalProcessHandler) -> LocalProcessHandler:
    """As another process would have it."""
    made = decode(json.loads(json.dumps(encode(handler))))
    assert isinstance(made, LocalProcessHandler)
    return made


class TestTheParent:
    def test_the_status_can_be_asked_for_again_and_again(self, jobs: LocalJobs) -> None:
        run = jobs.start(COMMAND, command="exit 7", shell=True)
        assert [run.wait().exit_code for _ in range(3)] == [7, 7, 7]
        assert copy_of(run.handler).wait(0) == JobResult(7, "exited with code 7")

    def test_no_zombie_is_left(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["true"])
        assert run.handler.main is not None
        assert not os.path.exists(f"/proc/{run.handler.main.pid}")

    def test_a_copy_of_the_handler_in_the_same_process_is_as_good(self, jobs: LocalJobs) -> None:
        run = jobs.start(COMMAND, command="exit 7", shell=True)
        assert copy_of(run.handler).wait(60) == JobResult(7, "exited with code 7")

    def test_starting_other_processes_does_not_take_the_status_away(self, jobs: LocalJobs) -> None:
        """What subprocess does for children that nobody waits for must not concern this one."""
        run = jobs.start(COMMAND, command="exit 7", shell=True)
        document = encode(run.handler)
        run.job.job_handler = None
        handler = decode(document)
        eventually(lambda: _state(handler.main.pid) == "Z", what="the job has ended")
        for _ in range(3):
            subprocess.run(["true"], check=True)
        assert handler.wait(0) == JobResult(7, "exited with code 7")

    def test_several_threads_may_wait(self, jobs: LocalJobs, tmp_path: Path) -> None:
        go = tmp_path / "go"
        run = jobs.start(COMMAND, command=["sh", "-c", UNTIL_TOLD, str(go)])
        found: list[JobResult | None] = []
        threads = [
            threading.Thread(target=lambda: found.append(run.handler.wait(60)), name=f"wait-{n}")
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        go.touch()
        for thread in threads:
            thread.join()
        assert found == [JobResult(7, "exited with code 7")] * 8

    def test_a_full_disk_costs_the_file_and_not_the_status(
        self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = jobs.start(COMMAND, command="exit 7", shell=True)
        run.handler.run_directory = "/proc/no-such-directory"
        assert run.wait().exit_code == 7
        assert run.wait().exit_code == 7


class TestSomebodyElse:
    def test_it_is_told_what_the_parent_wrote(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command="kill -SEGV $$", shell=True)
        assert run.elsewhere("wait") == "139"

    def test_it_sees_the_status_of_a_zombie(self, jobs: LocalJobs) -> None:
        run = jobs.start(COMMAND, command="exit 7", shell=True)
        assert run.elsewhere("wait") == "7"
        assert run.elsewhere("wait") == "7"

    def test_the_end_of_the_job_wakes_it(self, jobs: LocalJobs, tmp_path: Path) -> None:
        go = tmp_path / "go"
        run = jobs.start(COMMAND, command=["sh", "-c", UNTIL_TOLD, str(go)])
        waiting = _waiting_process(run.handler)
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting\n"
        go.touch()
        assert run.wait().exit_code == 7
        assert waiting.stdout.readline() == "7 exited with code 7\n"
        assert waiting.wait() == 0


class TestAParentThatWasKilled:
    def test_the_job_goes_on_and_its_end_is_seen_without_its_status(
        self, jobs: LocalJobs, tmp_path: Path
    ) -> None:
        go = tmp_path / "go"
        handler = _started_by_somebody_killed(jobs, go)
        assert handler.main is not None
        assert handler.main.is_alive()
        assert handler.wait(0.05) is None
        assert not handler.can_tell_status
        go.touch()
        result = handler.wait(60)
        assert result is not None
        assert not result.is_success
        assert result.exit_code == 7 or "how is not known" in result.reason

    def test_the_job_can_be_stopped(self, jobs: LocalJobs, tmp_path: Path) -> None:
        handler = _started_by_somebody_killed(jobs, tmp_path / "never")
        run = jobs.generate(COMMAND, command=["true"])
        run.job.job_context.run_id = handler.run_id
        run.job.job_handler = handler
        run.stop()
        assert handler.main is not None
        assert not handler.main.is_alive()


class TestAnotherProcessWithThePid:
    def test_it_is_not_waited_for(self, jobs: LocalJobs) -> None:
        own = ProcessIdentity.own()
        assert own.start_time is not None
        reused: dict[str, Any] = {**own.to_json(), "start_time": own.start_time - 1}
        handler = LocalProcessHandler("run", str(jobs.runs), ProcessIdentity.from_json(reused))
        result = handler.wait(0)
        assert result is not None
        assert "how is not known" in result.reason


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _waiting_process(handler: LocalProcessHandler) -> "subprocess.Popen[str]":
    code = (
        "import json, sys\nfrom dlrover_cli.contracts.jsonable import decode\n"
        "handler = decode(json.loads(sys.argv[1])); print('waiting', flush=True)\n"
        "result = handler.wait(60); print(result.exit_code, result.reason)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(encode(handler))],
        stdout=subprocess.PIPE,
        text=True,
    )


def _started_by_somebody_killed(jobs: LocalJobs, go: Path) -> LocalProcessHandler:
    """The handler of a job that waits for ``go``; who started it is dead."""
    run = jobs.generate(COMMAND, command=["sh", "-c", UNTIL_TOLD, str(go)])
    code = (
        "import json, sys, signal\nfrom dlrover_cli.contracts.jsonable import decode, encode\n"
        "from dlrover_cli.platforms.local.command_engine import LocalCommandPlugin\n"
        "plugin, job = LocalCommandPlugin(), decode(json.loads(sys.argv[1]))\n"
        "plugin.generate_job_resource(job)\n"
        "print(json.dumps(encode(plugin.submit_job(job))), flush=True)\n"
        "while True: signal.pause()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(encode(run.job))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    handler = decode(json.loads(starter.stdout.readline()))
    assert isinstance(handler, LocalProcessHandler)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    run.job.job_handler = handler
    return handler
