"""The same scripts under torchrun and dlrover-run: same environment, same files, same results."""

import json
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished, Launcher, Running, console_script
from tests.harness.processes import TOKEN_VARIABLE
from tests.harness.scripts import Scripts
from tests.integration.jobs import free_port, run_in, taken
from tests.project.documents import text

Launch = Callable[..., Finished]

BOTH = ("torchrun", "dlrover-run")
# Lines on stderr that are the launcher's own and not the workers'.
LAUNCHERS_OWN = re.compile(r"[IWE]\d{4} |\[[WE]\d{4} |dlrover-run: ")
# Where a worker leaves facts about its end; see the page.
OUR_DESCRIPTORS = 900
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the compatibility page."""
    page = (
        text("docs/reference/torchrun-compat.md")
        .partition(f"### {heading}\n")[2]
        .partition("\n#")[0]
    )
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def variables(says: str) -> set[str]:
    """The variables of a worker of which the page says this."""
    return {
        name
        for names, _, ours in table("The environment of a worker")
        for name in re.findall("`([A-Z_]+)`", names)
        if ours.startswith(says)
    }


class TestEnvironment:
    """What a worker can see of how it was started."""

    @pytest.mark.parametrize(
        "argv,env,may_differ",
        [
            pytest.param(["--standalone", "--nproc-per-node=2"], {}, "port id", id="standalone"),
            pytest.param(["--max-restarts=2", "--role=trainer"], ONE_THREAD, "port id", id="plain"),
            pytest.param(["--master-port=PORT", "--nproc-per-node=2"], {}, "", id="static"),
            pytest.param(
                ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:PORT", "--rdzv-id=job7"],
                {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "RANK": "17", "PET_ROLE": "mine"},
                "port",
                id="c10d",
            ),
            pytest.param(
                ["--standalone", "--nproc-per-node=2", "--virtual-local-rank"],
                {"CUDA_VISIBLE_DEVICES": "5,3"},
                "port id",
                id="virtual-local-rank",
                marks=pytest.mark.full,
            ),
            pytest.param(
                ["--standalone", "--signals-to-handle=SIGTERM,SIGUSR1", "-r3", "--log-dir=LOGS"],
                {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"},
                "port id",
                id="options",
                marks=pytest.mark.full,
            ),
            pytest.param(["--nproc-per-node=cpu"], {}, "port id", id="cpu", marks=pytest.mark.full),
        ],
    )
    def test_workers_see_the_same_and_ours_add_only_their_own_variables(
        self,
        launcher: Launcher,
        launch: Launch,
        scripts: Scripts,
        tmp_path: Path,
        argv: list[str],
        env: dict[str, str],
        may_differ: str,
    ) -> None:
        argv = placed(argv, tmp_path)
        theirs, ours = (environments(launch, scripts, command, argv, env) for command in BOTH)
        assert len(ours) == len(theirs)
        differing = variables("another path") | {TOKEN_VARIABLE}
        differing |= {"MASTER_PORT"} if "port" in may_differ else set()
        differing |= {"TORCHELASTIC_RUN_ID"} if "id" in may_differ else set()
        given = launcher.environment(env)
        for their, our in zip(theirs, ours, strict=True):
            assert set(our["env"]) - set(their["env"]) == variables("added")
            assert set(their["env"]) <= set(our["env"])
            different = {name for name in their["env"] if our["env"][name] != their["env"][name]}
            assert different <= differing
            set_by_torchrun = {n for n, value in their["env"].items() if given.get(n) != value}
            assert set_by_torchrun - {TOKEN_VARIABLE} <= variables(""), "all are on the page"
            for same in ("argv", "orig_argv", "cwd", "ignored"):
                assert our[same] == their[same], same
            opened = set(our["descriptors"]) - set(their["descriptors"])
            assert all(descriptor >= OUR_DESCRIPTORS for descriptor in opened)
            assert our["session"] == our["pid"], "a worker leads its own session, as under torchrun"
            assert their["session"] == their["pid"]

    @pytest.mark.parametrize("how", [["-m", "pkg.mod"], ["--no-python", "./program"]])
    def test_modules_and_programs_get_the_same_command_line(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, how: list[str]
    ) -> None:
        script = scripts.environment()
        package = tmp_path / "pkg"
        package.mkdir()
        shutil.copy(script, package / "mod.py")
        program = tmp_path / "program"
        program.write_text(f'#!/bin/sh\nexec python3 {script} "$0" "$@"\n')
        program.chmod(0o755)
        argv = [*how, "--lr", "0.1", "--", "-h", "${local_rank}", "two words"]
        theirs, ours = (environments(launch, scripts, command, argv, {}, "") for command in BOTH)
        for same in ("argv", "orig_argv", "cwd"):
            assert [each[same] for each in ours] == [each[same] for each in theirs], same
        assert ours[0]["argv"][-6:] == ["--lr", "0.1", "--", "-h", "0", "two words"]


class TestLogDir:
    """The files under --log-dir and what is on the console beside them."""

    SHORT = (
        "-r3",
        "-t3 --role=tr",
        "-r0:1,1:2 --local-ranks-filter=0",
        "-t3 --local-ranks-filter=1 --duplicate-stdout-filters=hello --duplicate-stderr-filters=wa",
    )
    LONG = (
        "",
        "-t0:3",
        "--local-ranks-filter=1",
        "-r3 --local-ranks-filter=0",
        "-t1 -r2 --duplicate-stdout-filters=hello,,x,never",
    )

    @pytest.mark.parametrize(
        "options", [*SHORT, *(pytest.param(each, marks=pytest.mark.full) for each in LONG)]
    )
    def test_the_same_files_with_the_same_lines_after_a_restart(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, options: str
    ) -> None:
        # Rank 1 fails when rank 0 has said everything; what torchrun shows is then certain.
        script = scripts.write(
            "talk.py",
            """
            say(f"hello from rank {rank}, attempt {attempt}")
            say("hello,x")
            os.write(2, f"warning from rank {rank}\\n".encode())
            if rank == 0:
                leave("said")
                while attempt == 0:
                    time.sleep(0.01)
            elif attempt == 0:
                while not os.path.exists(os.path.join(DIRECTORY, "said.0.0.json")):
                    time.sleep(0.01)
                sys.exit(3)
            """,
        )
        argv = ["--nproc-per-node=2", "--max-restarts=1"]
        seen = []
        for command in BOTH:
            logs = tmp_path / command
            finished = launch(
                [*argv, f"--log-dir={logs}", *options.split(), script],
                command=command,
                env=ONE_THREAD,
            )
            assert finished.returncode == 0, finished
            taken(scripts, "said")
            seen.append(
                {
                    "files": tree(logs),
                    "stdout": sorted(finished.stdout.splitlines()),
                    "stderr": sorted(workers_lines(finished.stderr)),
                }
            )
        assert seen[0] == seen[1]

    def test_the_line_prefix_is_a_template(self, launch: Launch, scripts: Scripts) -> None:
        template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank}>"}
        shown = [
            launch(
                ["--nproc-per-node=2", "-t3", "--role=r", scripts.hello()],
                command=command,
                env=template,
            )
            for command in BOTH
        ]
        lines = [sorted(each.stdout.splitlines()) for each in shown]
        assert lines[0] == lines[1] == [f"<r {n} {n}>hello from rank {n} of 2" for n in (0, 1)]


class TestResults:
    """How a run ends: the same outcome; the code is torchrun's 1, or the worker's own from us."""

    @pytest.mark.parametrize(
        "how,row",
        [
            (0, "every worker exits with 0"),
            (3, "a worker exits with 3"),
            ("raise", "a worker ends in an exception"),
            ("SIGKILL", "a worker is killed by SIGKILL"),
            pytest.param("SIGSEGV", "a worker is killed by SIGSEGV", marks=pytest.mark.full),
            pytest.param(2, "a worker exits with 2, or with 80 to 85", marks=pytest.mark.full),
            pytest.param(82, "a worker exits with 2, or with 80 to 85", marks=pytest.mark.full),
            pytest.param(255, "a worker exits with 255", marks=pytest.mark.full),
        ],
    )
    def test_an_end_by_code_or_signal(
        self, launch: Launch, scripts: Scripts, how: int | str, row: str
    ) -> None:
        script = scripts.crash(rank=1, how=how, others="wait" if how else "finish")
        argv = ["--nproc-per-node=2", script]
        codes = [launch(argv, command=command, env=ONE_THREAD).returncode for command in BOTH]
        assert codes == codes_of(row)

    def test_an_exception_after_which_the_interpreter_crashes(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.write(
            "crash_late.py",
            "import atexit\natexit.register(os.abort)\nraise ValueError('bad data')",
        )
        ends = [launch(["--max-restarts=1", script], command=command) for command in BOTH]
        assert [end.returncode for end in ends] == codes_of(
            "the same, and its interpreter crashes on the way out"
        )
        words = "exited with code 1 (ValueError: bad data): restarting all workers"
        assert words in ends[BOTH.index("dlrover-run")].stderr
        exits = run_in(tmp_path / "state").events("worker_exited")
        assert [event["data"]["status"] for event in exits] == [-signal.SIGABRT] * 2

    @pytest.mark.full
    def test_training_gives_the_same_numbers(self, launch: Launch, scripts: Scripts) -> None:
        script = scripts.write(
            "train.py",
            """
            import torch
            import torch.distributed as dist

            dist.init_process_group("gloo")
            torch.manual_seed(rank)
            weights = torch.randn(4, 2)
            dist.broadcast(weights, 0)
            weights.requires_grad_()
            for _ in range(3):
                (torch.randn(8, 4) @ weights).square().mean().backward()
                dist.all_reduce(weights.grad)
                with torch.no_grad():
                    weights -= 0.1 * weights.grad
                    weights.grad = None
            leave("weights", weights=weights.tolist())
            dist.destroy_process_group()
            """,
        )
        seen = []
        for command in BOTH:
            finished = launch(["--standalone", "--nproc-per-node=2", script], command=command)
            assert finished.returncode == 0, finished
            seen.append([fact["weights"] for fact in taken(scripts, "weights")])
        assert seen[0] == seen[1]
        assert seen[0][0] == seen[0][1]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_to_the_launcher_ends_the_workers(
        self, start: Callable[..., Running], scripts: Scripts, number: signal.Signals
    ) -> None:
        codes = []
        for command in BOTH:
            running = start(["--nproc-per-node=2", scripts.wait()], command=command, env=ONE_THREAD)
            running.wait_for("ready 0")
            running.wait_for("ready 1")
            running.signal(number)
            codes.append(running.finish().returncode)
        assert codes == codes_of(f"the launcher gets {number.name}")


@pytest.mark.full
class TestNestedLaunchers:
    """A launcher that is itself a worker hands its root cause on, as torchrun does."""

    @pytest.mark.parametrize(
        "outer,inner",
        [
            ("torchrun", "dlrover-run"),
            pytest.param("dlrover-run", "dlrover-run", marks=pytest.mark.full),
            pytest.param("torchrun", "torchrun", marks=pytest.mark.full),
            pytest.param("dlrover-run", "torchrun", marks=pytest.mark.full),
        ],
    )
    def test_the_error_file_of_the_outer_one_has_the_inner_root_cause(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, outer: str, inner: str
    ) -> None:
        script = scripts.write(
            "recorded.py",
            """
            # What torch's @record leaves behind, without the time to import torch.
            error = {
                "message": f"RuntimeError: rank {rank} fails on purpose",
                "extraInfo": {"py_callstack": "in train.py", "timestamp": str(int(time.time()))},
            }
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
                json.dump({"message": error}, file)
            sys.exit(1)
            """,
        )
        logs = tmp_path / "logs"
        launcher = ["--no-python", sys.executable, console_script(inner), "--standalone"]
        finished = launch([f"--log-dir={logs}", *launcher, script], command=outer)
        assert finished.returncode == 1, finished
        [path] = logs.glob("*/attempt_0/0/error.json")
        message = json.loads(path.read_text())["message"]
        assert message["message"] == "RuntimeError: rank 0 fails on purpose"
        assert message["errorCode"] == 1
        assert message["extraInfo"]["py_callstack"] == "in train.py"
        assert int(message["extraInfo"]["timestamp"]) > 0
        if outer == "torchrun":
            assert "traceback : in train.py" in finished.stderr

    def test_a_launcher_that_cannot_start_says_so_in_the_error_file(
        self, launch: Launch, tmp_path: Path
    ) -> None:
        path = tmp_path / "error.json"
        finished = launch(["nowhere.py"], env={"TORCHELASTIC_ERROR_FILE": str(path)})
        assert finished.returncode == 2
        message = json.loads(path.read_text())["message"]
        assert message["message"] == "ConfigError: there is no script 'nowhere.py'"

    def test_a_worker_that_recorded_nothing_is_described(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        path = tmp_path / "error.json"
        finished = launch(
            [scripts.crash(how="SIGSEGV")], env={"TORCHELASTIC_ERROR_FILE": str(path)}
        )
        assert finished.returncode == 128 + signal.SIGSEGV
        message = json.loads(path.read_text())["message"]
        assert message["message"].startswith("rank 0 was killed by SIGSEGV")
        assert message["errorCode"] == -signal.SIGSEGV

    def test_success_leaves_no_error_file(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        path = tmp_path / "error.json"
        finished = launch([scripts.hello()], env={"TORCHELASTIC_ERROR_FILE": str(path)})
        assert finished.returncode == 0, finished
        assert not path.exists()


def codes_of(row: str) -> list[int]:
    """The exit codes of torchrun and dlrover-run, as the page has them."""
    [codes] = [codes[:2] for end, *codes in table("Exit codes") if end == row]
    return [int(code) for code in codes]


def environments(
    launch: Launch,
    scripts: Scripts,
    command: str,
    argv: list[str],
    env: dict[str, str],
    script: str | Path | None = None,
) -> list[dict[str, Any]]:
    """What each worker saw; the script is the environment script unless argv names another."""
    what = [scripts.environment(), "--lr", "0.1", "--help"] if script is None else []
    finished = launch([*argv, *what], command=command, env=env)
    assert finished.returncode == 0, finished
    return taken(scripts, "environment")


def placed(argv: list[str], directory: Path) -> list[str]:
    """With a free port and a directory of its own in place of the words for them."""
    port = str(free_port())
    return [arg.replace("PORT", port).replace("LOGS", str(directory / "logs")) for arg in argv]


def tree(directory: Path) -> dict[str, list[str]]:
    """Every file below, by its path without the run's own name, with its lines in any order."""

    def files() -> Iterator[tuple[str, list[str]]]:
        for path in directory.glob("*/**/*"):
            name = "/".join(path.relative_to(directory).parts[1:])
            yield name, sorted(path.read_text().splitlines()) if path.is_file() else ["(directory)"]

    assert len(list(directory.iterdir())) == 1, "one directory for the run"
    return dict(files())


def workers_lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line and not LAUNCHERS_OWN.match(line)]
