"""Jobs of the engines cmd_line and python: how they start, what they see, and how they end."""

import hashlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.jobs import JobResult
from dlrover_cli.errors import ConfigError, LaunchError
from dlrover_cli.platforms.local import local_job
from dlrover_cli.platforms.local.command_engine import LocalCommandPlugin
from dlrover_cli.platforms.local.local_job import LocalJob
from dlrover_cli.platforms.local.python_engine import LocalPythonPlugin
from dlrover_cli.platforms.local.torch_engine import LocalTorchPlugin
from tests.harness.processes import is_alive
from tests.harness.waiting import eventually
from tests.platforms.local.job_processes import all_gone
from tests.platforms.local.running_job import LocalJobs

COMMAND = LocalCommandPlugin()
PYTHON = LocalPythonPlugin()
TORCH = LocalTorchPlugin()


class TestEndings:
    @pytest.mark.parametrize(
        "script, code, reason",
        [
            ("exit 0", 0, ""),
            ("exit 3", 3, "exited with code 3"),
            ("exit 82", 82, "exited with code 82"),
            ("kill -TERM $$", 143, "killed by SIGTERM"),
            ("kill -KILL $$", 137, "killed by SIGKILL"),
            ("kill -40 $$", 168, "killed by signal 40"),
        ],
    )
    def test_a_job_has_its_commands_own_exit_code(
        self, jobs: LocalJobs, script: str, code: int, reason: str
    ) -> None:
        result = jobs.end(COMMAND, command=script, shell=True).result
        assert (result.exit_code, result.reason) == (code, reason)

    def test_a_command_that_does_not_exist(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["no-such-command", "x"])
        sentence = "cannot start 'no-such-command': there is no such command in PATH"
        assert (run.result.exit_code, run.result.reason) == (127, sentence)
        assert run.stderr == f"{sentence}\n"

    def test_a_file_that_does_not_exist(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["./missing.sh"])
        assert run.result.exit_code == 127
        assert run.result.reason == "cannot start './missing.sh': there is no such file"

    @pytest.mark.parametrize(
        "content, mode, code, why",
        [
            ("#!/bin/sh\n", 0o644, 126, "it is not executable"),
            ("#!/no/such/interpreter\n", 0o755, 127, "the interpreter in its first line"),
            ("echo hello\n", 0o755, 126, "neither a program nor a script that begins with #!"),
        ],
    )
    def test_a_file_that_cannot_be_executed(
        self, jobs: LocalJobs, content: str, mode: int, code: int, why: str
    ) -> None:
        path = jobs.project / "tool"
        path.write_text(content)
        path.chmod(mode)
        result = jobs.end(COMMAND, command=["./tool"]).result
        assert result.exit_code == code
        assert why in result.reason

    def test_a_directory_is_no_command(self, jobs: LocalJobs) -> None:
        result = jobs.end(COMMAND, command=["./"]).result
        assert (result.exit_code, result.reason) == (126, "cannot start './': it is a directory")

    def test_arguments_that_no_process_can_be_given(self, jobs: LocalJobs) -> None:
        result = jobs.end(COMMAND, command=["true", "x" * 10_000_000]).result
        assert (result.exit_code, result.reason) == (
            126,
            "cannot start 'true': Argument list too long",
        )

    def test_a_directory_to_run_in_that_is_gone(self, jobs: LocalJobs) -> None:
        result = jobs.end(COMMAND, command=["true"], cwd="gone").result
        assert result.exit_code == 126
        assert result.reason == f"cannot start 'true' in {jobs.project}/gone: no such directory"

    def test_what_could_not_be_started_can_be_stopped_and_cleaned_up(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["no-such-command"])
        run.stop()
        run.cleanup()
        assert run.elsewhere("wait") == "127"

    def test_what_a_job_leaves_running_ends_when_it_is_cleaned_up(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command="setsid sleep 1000 & echo $!", shell=True)
        left = int(run.stdout)
        assert is_alive(left)
        run.cleanup()
        assert not is_alive(left)

    def test_a_job_may_start_what_is_to_outlive_it(self, jobs: LocalJobs) -> None:
        code = (
            "import os, sys; r, w = os.pipe()\n"
            "if os.fork() == 0:\n    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.execvp('env', ['env', '-u', 'DLROVER_RUN_ID', 'sh', '-c',\n"
            "        'echo $$ >outlives.part; mv outlives.part outlives; exec sleep 1000'])\n"
            "os.wait()"
        )
        run = jobs.end(COMMAND, command=[sys.executable, "-c", code])
        path = jobs.project / "outlives"
        eventually(path.exists, what="it runs")
        pid = int(path.read_text())
        try:
            run.cleanup()
            assert is_alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)

    def test_a_job_whose_handler_was_never_written_can_be_stopped(self, jobs: LocalJobs) -> None:
        run = jobs.start(COMMAND, command=["sleep", "1000"])
        handler = run.handler
        run.job.job_handler = None
        assert run.elsewhere("stop") == "stopped"
        assert handler.wait(60) == JobResult(143, "killed by SIGTERM")

    def test_a_job_of_another_host_is_not_stopped_from_here(self, jobs: LocalJobs) -> None:
        run = jobs.start(COMMAND, command=["sleep", "1000"])
        assert run.handler.process is not None
        run.handler.process["host"] = "far-away"
        try:
            with pytest.raises(LaunchError, match="run on far-away and cannot be ended from here"):
                run.stop()
            run.cleanup()  # nothing of it is here
            assert is_alive(run.handler.process["pid"])
        finally:
            run.handler.process["host"] = socket.gethostname()

    def test_what_could_not_be_ended_is_named(
        self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = jobs.start(COMMAND, command=["sleep", "1000"])
        main = run.handler.main
        assert main is not None
        monkeypatch.setattr(local_job, "stop_tree", lambda *_, **__: (main,))
        with pytest.raises(LaunchError, match=f"not even by SIGKILL: process {main.pid}$"):
            run.stop()
        monkeypatch.undo()

    def test_a_stopped_job_has_the_time_that_it_asked_for(self, jobs: LocalJobs) -> None:
        code = (
            "import signal, sys, time\n"
            "def save(*_): open('saved', 'w').close(); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, save); open('ready', 'w').close()\n"
            "while True: signal.pause()"
        )
        run = jobs.start(COMMAND, command=[sys.executable, "-c", code], shutdown_timeout=30)
        eventually((jobs.project / "ready").exists, what="the job is ready")
        run.stop()
        assert (jobs.project / "saved").exists()
        assert run.result.is_success

    def test_whoever_stops_it_may_give_it_less_time(self, jobs: LocalJobs) -> None:
        script = "trap '' TERM; touch ready; while :; do sleep 1000; done"
        run = jobs.start(COMMAND, command=script, shell=True)
        eventually((jobs.project / "ready").exists, what="the job is ready")
        run.job.job_context.stop_grace = 0.1
        run.stop()
        assert run.result.exit_code == 137
        assert run.handler.main is not None
        assert all_gone(run.handler.main)


class TestSurroundings:
    def test_no_shell_reads_a_list(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["echo", "$HOME", "*", ";", "exit 3"])
        assert run.stdout == "$HOME * ; exit 3\n"

    def test_a_shell_reads_a_text_when_asked(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command="echo a b | tr ' ' -; exit 4", shell=True)
        assert run.stdout == "a-b\n"
        assert run.result.exit_code == 4

    def test_it_runs_where_the_job_file_is(self, jobs: LocalJobs) -> None:
        assert jobs.end(COMMAND, command=["pwd", "-P"]).stdout == f"{jobs.project}\n"

    def test_a_relative_cwd_is_meant_from_there(self, jobs: LocalJobs) -> None:
        (jobs.project / "sub").mkdir()
        run = jobs.end(COMMAND, command=["pwd", "-P"], cwd="sub")
        assert run.stdout == f"{jobs.project}/sub\n"

    def test_an_absolute_cwd_stays(self, jobs: LocalJobs, tmp_path: Path) -> None:
        assert jobs.end(COMMAND, command=["pwd", "-P"], cwd=str(tmp_path)).stdout == f"{tmp_path}\n"

    def test_a_relative_command_is_meant_from_its_cwd(self, jobs: LocalJobs) -> None:
        (jobs.project / "sub").mkdir()
        tool = jobs.project / "sub" / "tool"
        tool.write_text("#!/bin/sh\necho here\n")
        tool.chmod(0o755)
        assert jobs.end(COMMAND, command=["./tool"], cwd="sub").stdout == "here\n"

    def test_env_is_added_to_what_is_inherited(
        self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KEPT", "kept")
        monkeypatch.setenv("CHANGED", "before")
        monkeypatch.setenv("DLROVER_RUN", '{"run_id": "another"}')
        script = "echo $KEPT $CHANGED $NEW ${DLROVER_RUN-none} $DLROVER_RUN_ID"
        run = jobs.end(COMMAND, command=script, shell=True, env={"CHANGED": "after", "NEW": "ü="})
        assert run.stdout == f"kept after ü= none {run.run_id}\n"

    def test_the_path_of_env_is_searched(self, jobs: LocalJobs) -> None:
        (jobs.project / "bin").mkdir()
        tool = jobs.project / "bin" / "my-tool"
        tool.write_text("#!/bin/sh\necho mine\n")
        tool.chmod(0o755)
        path = f"{jobs.project}/bin:{os.environ['PATH']}"
        assert jobs.end(COMMAND, command=["my-tool"], env={"PATH": path}).stdout == "mine\n"

    def test_it_inherits_nothing_of_its_runner_but_the_environment(self, jobs: LocalJobs) -> None:
        code = (
            "import os, json; status = open('/proc/self/status').read().split()\n"
            "at = lambda name: int(status[status.index(name) + 1], 16)\n"
            "print(json.dumps({'session': os.getsid(0) == os.getpid(), 'umask': os.umask(0),\n"
            "  'blocked': at('SigBlk:'), 'ignored': at('SigIgn:'), 'stdin': os.read(0, 1) == b'',\n"
            "  'files': sorted(int(n) for n in os.listdir('/proc/self/fd'))}))"
        )
        python = [sys.executable, "-I", "-S", "-c", code]
        with _odd_process():
            run = jobs.start(COMMAND, command=["env", *python])
        # A Python program ignores SIGPIPE and SIGXFSZ by itself.
        by_python = (1 << (signal.SIGPIPE - 1)) | (1 << (signal.SIGXFSZ - 1))
        assert run.result.is_success
        found: dict[str, Any] = json.loads(run.stdout)
        assert found == {
            "session": True,
            "umask": 0o022,
            "blocked": 0,
            "ignored": by_python,
            "stdin": True,
            "files": [0, 1, 2, 3],  # the last one is how it looked
        }

    def test_its_status_is_kept_although_the_runner_ignores_its_children(
        self, jobs: LocalJobs
    ) -> None:
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            assert jobs.end(COMMAND, command=["false"]).result.exit_code == 1
        finally:
            signal.signal(signal.SIGCHLD, before)


@contextmanager
def _odd_process() -> Iterator[None]:
    """As a runner may be that was started by somebody odd: all of this is inherited by default."""
    umask = os.umask(0o077)
    hup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        yield
    finally:
        os.close(reader)
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGHUP, hup)
        os.umask(umask)


class TestOutput:
    def test_it_is_kept_where_that_of_rank_0_would_be_and_is_private(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command="echo out; echo err >&2", shell=True)
        place = f"nodes/{socket.gethostname()}.{os.getpid()}/logs/attempt_0/0"
        assert (run.directory / place / "stdout.log").read_text() == "out\n"
        assert (run.directory / place / "stderr.log").read_text() == "err\n"
        for path, mode in run.modes().items():
            is_directory = stat.S_ISDIR((run.directory / path).stat().st_mode)
            assert mode == (0o700 if is_directory else 0o600), path

    def test_every_time_of_a_periodic_job_has_its_own(self, jobs: LocalJobs) -> None:
        run = jobs.generate(COMMAND, command=["echo", "hello"])
        for number in range(3):
            run.job.job_context.occurrence = number
            run.submit()
            assert run.wait().is_success
            run.cleanup()
        assert [run.log(attempt=number).read_text() for number in range(3)] == ["hello\n"] * 3

    def test_the_same_time_once_more_overwrites_nothing(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["echo", "hello"])
        run.submit()
        run.wait()
        assert run.stdout == "hello\nhello\n"

    def test_output_may_be_large(self, jobs: LocalJobs) -> None:
        code = (
            "import sys\n"
            "for _ in range(300): sys.stdout.write('o' * 100000); sys.stderr.write('e' * 100000)"
        )
        run = jobs.end(COMMAND, command=[sys.executable, "-c", code])
        assert run.result.is_success
        for stream, letter in (("stdout", b"o"), ("stderr", b"e")):
            expected = hashlib.sha256(letter * 30_000_000).hexdigest()
            assert hashlib.sha256(run.log(stream).read_bytes()).hexdigest() == expected

    def test_cleaning_up_leaves_it_there(self, jobs: LocalJobs) -> None:
        run = jobs.end(COMMAND, command=["echo", "hello"])
        run.cleanup()
        assert run.stdout == "hello\n"


class TestPython:
    def test_a_script_with_arguments(self, jobs: LocalJobs) -> None:
        (jobs.project / "job.py").write_text("import sys; print(sys.argv, sys.executable)")
        run = jobs.end(PYTHON, script="job.py", args=["--epochs", "3", ""])
        assert run.stdout == f"{['job.py', '--epochs', '3', '']} {sys.executable}\n"

    def test_a_module(self, jobs: LocalJobs) -> None:
        (jobs.project / "tools").mkdir()
        (jobs.project / "tools" / "job.py").write_text("print(__name__, __spec__.name)")
        assert jobs.end(PYTHON, module="tools.job").stdout == "__main__ tools.job\n"

    def test_another_interpreter(self, jobs: LocalJobs) -> None:
        interpreter = jobs.project / "my-python"
        interpreter.write_text('#!/bin/sh\necho mine "$@"\n')
        interpreter.chmod(0o755)
        run = jobs.end(PYTHON, script="job.py", python="./my-python")
        assert run.stdout == "mine job.py\n"

    def test_a_line_is_in_the_log_when_it_is_printed(self, jobs: LocalJobs) -> None:
        (jobs.project / "job.py").write_text(
            "import signal; print('hello')\nwhile True: signal.pause()"
        )
        run = jobs.start(PYTHON, script="job.py")
        eventually(lambda: run.stdout == "hello\n", what="the line is there")
        run.stop()

    def test_the_job_may_have_it_otherwise(self, jobs: LocalJobs) -> None:
        run = jobs.generate(PYTHON, script="job.py", env={"PYTHONUNBUFFERED": ""})
        assert isinstance(run.job, LocalJob)
        assert run.job.env == {"PYTHONUNBUFFERED": ""}


class TestBadProperties:
    @pytest.mark.parametrize(
        "plugin, properties, message, hint",
        [
            (COMMAND, {}, "command names no program", "[program, argument]"),
            (COMMAND, {"command": []}, "command names no program", "[program, argument]"),
            (COMMAND, {"command": [""]}, "command names no program", "[program, argument]"),
            (COMMAND, {"comand": ["x"]}, "no property 'comand'", "Did you mean 'command'?"),
            (COMMAND, {"zzz": 1}, "'cmd_line' has no property 'zzz'", "There are: command, shell"),
            (
                COMMAND,
                {"command": "echo hi"},
                "command takes a list of texts, unless it is for a shell",
                "command: [echo, hi]; or add shell: true",
            ),
            (
                COMMAND,
                {"command": ["echo"], "shell": True},
                "command must be one text when it is for a shell",
                "take shell out",
            ),
            (COMMAND, {"shell": True}, "must be one text", "take shell out"),
            (COMMAND, {"command": "", "shell": True}, "command is empty", "Give it a value"),
            (COMMAND, {"command": ["x"], "shell": "yes"}, "shell takes true or false", "true"),
            (COMMAND, {"command": 3}, "takes a list of texts, not the number 3", "[one, two]"),
            (
                COMMAND,
                {"command": ["x", 3]},
                "command[1] takes a text, not the number 3",
                "just as you wrote it",
            ),
            (
                COMMAND,
                {"command": ["x", True]},
                "command[1] takes a text, not true",
                "just as you wrote it",
            ),
            (COMMAND, {"command": ["x", ["y"]]}, "command[1] takes a text, not a list", "a text"),
            (COMMAND, {"command": ["x", "a\0b"]}, "command[1] has a NUL in it", "Take it out"),
            (
                COMMAND,
                {"command": ["x"], "cwd": 3},
                "cwd takes a text, not the number 3",
                "just as you wrote it",
            ),
            (COMMAND, {"command": ["x"], "cwd": ""}, "cwd is empty", "leave it out"),
            (COMMAND, {"command": ["x"], "env": ["A=1"]}, "env takes a mapping, not a list", "{NA"),
            (
                COMMAND,
                {"command": ["x"], "env": {"A": 1}},
                "env.A takes a text",
                "just as you wrote it",
            ),
            (COMMAND, {"command": ["x"], "env": {"A=B": "1"}}, "env cannot have 'A=B'", "{NAME"),
            (
                COMMAND,
                {"command": ["x"], "env": {"DLROVER_RUN_ID": "x"}},
                "env cannot set DLROVER_RUN_ID",
                "which run",
            ),
            (
                COMMAND,
                {"command": ["x"], "shutdown_timeout": -1},
                "shutdown_timeout takes a number of seconds, not the number -1",
                "30",
            ),
            (PYTHON, {}, "script is missing, and so is module", "script: prepare.py"),
            (PYTHON, {"script": "a.py", "module": "a"}, "cannot stand beside script", "one of"),
            (PYTHON, {"scrpt": "a.py"}, "no property 'scrpt'", "Did you mean 'script'?"),
            (PYTHON, {"script": "a.py", "args": "x"}, "args takes a list of texts", "[one, two]"),
            (TORCH, {}, "a torch job needs a script", "train.py"),
            (TORCH, {"script": "a.py", "nproc_pernode": 2}, "nproc_pernode", "nproc_per_node"),
            (
                TORCH,
                {"script": "a.py", "env": {"A": 1}},
                "env.A takes a text",
                "just as you wrote it",
            ),
        ],
    )
    def test_each_has_one_sentence_and_a_hint(
        self,
        jobs: LocalJobs,
        plugin: Any,
        properties: dict[str, Any],
        message: str,
        hint: str,
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            jobs.generate(plugin, **properties)
        assert message in caught.value.message
        assert caught.value.message.startswith("job 'contract': ")
        assert hint in (caught.value.hint or "")
