"""Warm workers in whole runs: whoever launches them, whatever happens to them, nobody is left."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import Finished, Running
from tests.harness.processes import process_info
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import taken

Launch = Callable[..., Finished]
Start = Callable[..., Running]

QUICKLY = ("--preload", "none")
TWO = ("--nproc-per-node=2", *QUICKLY)
TELL = 'say("forked" if "torch" in sys.modules else "started")\n'
USERS_PROGRAM = """
import sys, threading
from dlrover_cli.cli.run import main

if __name__ == "__main__":
    if "--in-thread" in sys.argv:
        sys.argv.remove("--in-thread")
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
    else:
        main(sys.argv[1:])
    print("and goes on")
"""
WAIT_FOR_STANDBYS = """
def siblings():
    with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as file:
        return len(file.read().split())

leave("start")
say(f"ready {rank}")
while siblings() < 2 * world_size:
    time.sleep(0.01)
"""


class TestCallers:
    """The zygote is forked from a launcher of ours and executed where there is none."""

    @pytest.mark.parametrize(
        "command",
        [
            "dlrover-run",
            pytest.param([sys.executable, "-m", "dlrover_cli"], marks=pytest.mark.full),
        ],
        ids=["script", "module"],
    )
    def test_a_launcher_of_ours_forks_its_workers(
        self, launch: Launch, scripts: Scripts, command: str | list[str]
    ) -> None:
        finished = launch([*TWO, scripts.write("tell.py", TELL)], command=command)
        assert finished.returncode == 0, finished
        assert finished.stdout.splitlines() == ["forked", "forked"]
        assert "fresh" not in finished.stderr

    @pytest.mark.full
    @pytest.mark.parametrize("how", [[], ["--in-thread"]], ids=["main", "thread"])
    def test_a_program_of_the_user_goes_on_after_it_and_its_workers_do_not(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, how: list[str]
    ) -> None:
        program = tmp_path / "program.py"
        program.write_text(USERS_PROGRAM)
        argv = [*how, *TWO, scripts.write("tell.py", TELL)]
        finished = launch(argv, command=[sys.executable, str(program)])
        assert finished.returncode == 0, finished
        assert finished.stdout.splitlines() == ["forked", "forked", "and goes on"]

    def test_workers_are_fresh_on_request(self, launch: Launch, scripts: Scripts) -> None:
        finished = launch(["--worker_start=fresh", scripts.write("tell.py", TELL)])
        assert finished.stdout.splitlines() == ["started"]
        assert finished.stderr == ""

    def test_a_script_that_is_hidden_in_a_module_is_said(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        (tmp_path / "queue.py").write_text("MINE = True\n")
        script = scripts.write("tell.py", "import queue\nsay(str(queue.MINE))\n")
        finished = launch([*QUICKLY, script])
        assert finished.stdout == "True\n", finished
        line = f"{tmp_path / 'queue.py'} hides queue, which warm workers have loaded"
        assert f"dlrover-run: {line}; workers are started fresh\n" in finished.stderr

    @pytest.mark.full
    def test_a_customisation_of_the_user_runs_in_every_worker(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        custom = tmp_path / "custom" / "sitecustomize.py"
        custom.parent.mkdir()
        custom.write_text("import os\nSEEN = os.environ.get('RANK')\n")
        script = scripts.write("tell.py", "import sitecustomize\nsay(sitecustomize.SEEN)\n")
        finished = launch([*TWO, script], env={"PYTHONPATH": str(custom.parent)})
        assert sorted(finished.stdout.splitlines()) == ["0", "1"]
        line = f"workers are started fresh: {custom} is run at the start of every interpreter"
        assert f"dlrover-run: {line}\n" in finished.stderr


class TestAttempts:
    """What changes between two attempts."""

    def test_the_new_text_of_an_edited_script_runs(self, launch: Launch, scripts: Scripts) -> None:
        script = scripts.write(
            "edited.py",
            """
            say("the old text")
            with open(__file__, "w") as file:
                file.write("print('the new text')\\n")
            sys.exit(3)
            """,
        )
        finished = launch(["--max-restarts=1", *QUICKLY, script])
        assert finished.returncode == 0, finished
        assert finished.stdout.splitlines() == ["the old text", "the new text"]

    @pytest.mark.parametrize("way", ["warm", "fresh"])
    def test_a_script_that_was_deleted_cannot_be_opened(
        self, launch: Launch, scripts: Scripts, way: str
    ) -> None:
        script = scripts.write("deleted.py", "os.unlink(__file__)\nsys.exit(3)\n")
        finished = launch(["--max-restarts=1", f"--worker_start={way}", *QUICKLY, script])
        assert finished.returncode == 1, finished
        why = "[Errno 2] No such file or directory"
        assert f"{sys.executable}: can't open file '{script}': {why}\n" in finished.stderr

    def test_after_the_zygote_was_killed_the_job_goes_on_with_fresh_workers(
        self, start: Start, scripts: Scripts
    ) -> None:
        body = TELL + 'leave("start")\nif attempt == 0:\n    time.sleep(60)\n'
        running = start(["--max-restarts=1", *TWO, scripts.write("tell.py", body)])
        running.wait_for(lambda _: len(scripts.facts("start")) == 2)
        os.kill(process_info(scripts.facts("start")[0]["pid"]).parent, signal.SIGKILL)
        finished = running.finish()
        assert finished.returncode == 0, finished
        assert finished.stdout.splitlines() == ["forked"] * 2 + ["started"] * 2
        line = "the warm process has died; workers are started fresh"
        assert f"dlrover-run: {line}\n" in finished.stderr


class TestNobodyIsLeft:
    """The harness fails a test that leaves a process; here there are some to leave."""

    @pytest.mark.parametrize("code", [0, pytest.param(3, marks=pytest.mark.full)])
    def test_after_an_end_with_children_in_waiting(
        self, launch: Launch, scripts: Scripts, code: int
    ) -> None:
        script = scripts.write("end.py", WAIT_FOR_STANDBYS + "sys.exit(CODE)\n", CODE=code)
        assert launch([*TWO, script]).returncode == code

    @pytest.mark.parametrize(
        "number",
        [
            pytest.param(signal.SIGTERM, marks=pytest.mark.full),
            pytest.param(signal.SIGINT, marks=pytest.mark.full),
            signal.SIGKILL,
        ],
        ids=lambda number: number.name,
    )
    def test_after_a_signal_to_the_launcher(
        self, start: Start, scripts: Scripts, number: signal.Signals
    ) -> None:
        body = WAIT_FOR_STANDBYS + 'leave("waiting")\ntime.sleep(60)\n'
        running = start([*TWO, scripts.write("wait.py", body)])
        running.wait_for(lambda _: len(scripts.facts("waiting")) == 2)
        running.signal(number)
        running.finish(timeout=20)
        eventually(lambda: not running.processes(), what="the end of all processes")


@pytest.mark.full
class TestSlowModules:
    """A module that takes long to load does not keep anybody from ending the run."""

    @pytest.fixture
    def slow(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "slow.py").write_text(
            "import os, time\nprint('slow begins', flush=True)\ntime.sleep(60)\n"
        )
        return {"PYTHONPATH": str(tmp_path)}

    @pytest.mark.parametrize(
        "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name
    )
    def test_a_signal_ends_it_at_once(
        self, start: Start, scripts: Scripts, slow: dict[str, str], number: signal.Signals
    ) -> None:
        running = start([*TWO, "--preload", "slow", scripts.hello()], env=slow)
        running.wait_for("slow begins")
        running.signal(number)
        finished = running.finish(timeout=5)
        assert finished.returncode in (-number, 128 + number)
        eventually(lambda: not running.processes(), what="the end of all processes")


@pytest.mark.parametrize(
    "argv,note",
    [
        ([], "workers are forked from a process that has loaded torch, numpy, "),
        (["--worker_start=fresh"], "workers are started fresh\n"),
        (["directory"], "workers are started fresh: directory is not the text of a script\n"),
    ],
)
def test_the_plan_says_how_workers_are_started(
    launch: Launch, scripts: Scripts, argv: list[str], note: str
) -> None:
    scripts.write("directory/__main__.py", "")
    finished = launch(["--dry_run", *argv, scripts.hello()], env={"COLUMNS": "500"})
    assert finished.returncode == 0, finished
    assert note in finished.stdout


@pytest.mark.full
@pytest.mark.parametrize("count", ["1", "cpu"])
def test_workers_have_as_many_threads_as_under_torchrun(
    launch: Launch, scripts: Scripts, count: str
) -> None:
    script = scripts.write(
        "threads.py",
        """
        import torch
        a = torch.ones(600, 600)
        (a @ a).sum()
        leave(
            "threads",
            counts=[torch.get_num_threads(), torch.get_num_interop_threads()],
            variable=os.environ.get("OMP_NUM_THREADS"),
            tasks=len(os.listdir("/proc/self/task")),
        )
        """,
    )
    seen = []
    for command, start in (("torchrun", None), ("dlrover-run", "fresh"), ("dlrover-run", "warm")):
        option = [] if start is None else [f"--worker_start={start}"]
        argv = [f"--nproc-per-node={count}", *option, script]
        # Executed, since torch reads the number of threads when it is loaded.
        assert launch(argv, command=command, real=start == "warm").returncode == 0
        seen.append(taken(scripts, "threads"))
    for theirs, fresh, warm in zip(*seen, strict=True):
        for same in ("counts", "variable"):
            assert fresh[same] == theirs[same]
            assert warm[same] == theirs[same]
        # numpy's library starts its own when it is loaded, and ends them at a fork until needed.
        assert warm["tasks"] <= fresh["tasks"] == theirs["tasks"]


def test_a_variable_that_is_set_too_late_is_said_once(launch: Launch, scripts: Scripts) -> None:
    body = 'os.environ["TORCH_LOGS"] = "dynamo"\nos.environ["OMP_PROC_BIND"] = "true"\n'
    finished = launch([*TWO, scripts.write("late.py", body)])
    [line] = [line for line in finished.stderr.splitlines() if "TORCH_LOGS" in line]
    assert line == (
        "dlrover-run: the script sets TORCH_LOGS after torch was loaded, where it may have no "
        "effect; export it before the launch, or use --worker_start=fresh"
    )
    assert "OMP_PROC_BIND" not in finished.stderr
