"""Functions as workers: `elastic_launch` in a user's own program, and `--run-path`."""

import json
import signal
import textwrap
from pathlib import Path

import pytest

from tests.harness.processes import is_alive
from tests.harness.waiting import eventually

# How a user's program looks; the body defines `work` and may define `check`.
PROGRAM = """
import json, os, signal, subprocess, sys, time
from pathlib import Path

DIRECTORY = Path({directory!r})


def leave(name, content):
    path = DIRECTORY / name
    path.with_suffix(".new").write_text(json.dumps(content))
    path.with_suffix(".new").rename(path)


{body}

if __name__ == "__main__":
    from dlrover_cli import LaunchConfig, elastic_launch

    options = dict(min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=0) | {options!r}
    leave("values", elastic_launch(LaunchConfig(**options), {function})(*{args!r}))
"""

SLEEPER = """
def work():
    child = subprocess.Popen(["sleep", "60"])
    leave(f"pids.{os.environ['RANK']}", [os.getpid(), child.pid])
    time.sleep(60)
"""


@pytest.fixture
def program(tmp_path):
    """Writes a program that launches a function; returns its path."""

    def write(body, *args, function="work", **options):
        text = PROGRAM.format(
            directory=str(tmp_path),
            body=textwrap.dedent(body),
            function=function,
            args=args,
            options=options,
        )
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def left(tmp_path):
    """What a program or its workers have left under a name."""

    def read(name):
        return json.loads((tmp_path / name).read_text())

    return read


@pytest.fixture
def start_program(start, monkeypatch):
    """Starts a program as `start` starts a launcher: forked from the server that has torch."""

    def start_it(path):
        monkeypatch.setattr("tests.harness.launcher.console_script", lambda name: str(path))
        return start([])

    return start_it


@pytest.fixture
def run_program(start_program):
    """Runs a program to its end."""

    def run(path):
        return start_program(path).finish()

    return run


def pids_left(tmp_path: Path) -> list[int]:
    """The pids of both workers and of their children, once they are there."""
    paths = [tmp_path / f"pids.{rank}" for rank in (0, 1)]
    if not all(path.exists() for path in paths):
        return []
    return [pid for path in paths for pid in json.loads(path.read_text())]


FORK = {"start_method": "fork"}


@pytest.mark.parametrize("options", [FORK, pytest.param({}, marks=pytest.mark.full)])
def test_values_come_back_by_rank_after_a_crash_and_a_restart(run_program, program, left, options):
    path = program(
        """
        def work(base, greeting):
            rank, attempt = int(os.environ["RANK"]), int(os.environ["DLROVER_ATTEMPT"])
            print(f"{greeting} from rank {rank} in attempt {attempt}", flush=True)
            if attempt == 0:
                if rank == 1:
                    raise RuntimeError("the first attempt fails")
                time.sleep(60)
            return {"rank": rank, "sum": base + rank, "world": os.environ["WORLD_SIZE"]}
        """,
        100,
        "hello",
        max_restarts=1,
        **options,
    )
    finished = run_program(path)
    assert finished.returncode == 0, finished
    assert left("values") == {
        "0": {"rank": 0, "sum": 100, "world": "2"},
        "1": {"rank": 1, "sum": 101, "world": "2"},
    }
    for attempt in (0, 1):
        assert f"hello from rank 1 in attempt {attempt}" in finished.stdout
    assert "RuntimeError: the first attempt fails" in finished.stderr


def test_spawned_functions_get_arguments_and_return_values(run_program, program, left):
    body = """
    class Record:
        def __init__(self, text):
            self.text = text

    def work(text):
        record = Record(text)  # a class of the program itself
        return [record.text, os.environ["RANK"], __name__]
    """
    finished = run_program(program(body, "text"))
    assert finished.returncode == 0, finished
    # As multiprocessing has it, the program is not `__main__` in a spawned worker.
    assert left("values") == {"0": ["text", "0", "__mp_main__"], "1": ["text", "1", "__mp_main__"]}


def test_a_failure_raises_torchs_exception_with_the_workers_traceback(run_program, program):
    path = program(
        """
        def work():
            if os.environ["RANK"] == "1":
                raise RuntimeError("no restart will mend this")
            time.sleep(60)
        """,
        **FORK,
    )
    finished = run_program(path)
    assert finished.returncode == 1, finished
    assert "ChildFailedError" in finished.stderr or "JobFailed" in finished.stderr
    assert "RuntimeError: no restart will mend this" in finished.stderr


@pytest.mark.parametrize("options", [FORK, pytest.param({}, marks=pytest.mark.soak)])
def test_functions_leave_the_same_facts_as_scripts(run_program, program, tmp_path, options):
    path = program(
        """
        def work():
            if os.environ["RANK"] == "0":
                time.sleep(60)
            from dlrover_cli import heartbeat

            heartbeat()
            signal.raise_signal(signal.SIGSEGV)
        """,
        **options,
    )
    finished = run_program(path)
    assert finished.returncode != 0, finished
    [kept] = (tmp_path / "state").glob("dlrover/runs/*/nodes/*/failures/1.json")
    failure = json.loads(kept.read_text())
    assert (failure["kind"], failure["phase"]) == ("signal", "training")
    [worker] = failure["workers"]
    assert (worker["global_rank"], worker["signal"]) == (1, signal.SIGSEGV)
    assert worker["traceback"].startswith("Fatal Python error: Segmentation fault")
    assert "in work" in worker["traceback"]


@pytest.mark.parametrize("options", [FORK, pytest.param({}, marks=pytest.mark.soak)])
def test_the_shutdown_timeout_holds_for_functions(run_program, program, options):
    path = program(
        """
        def work():
            signal.signal(signal.SIGTERM, lambda *_: None)
            leave(f"ready.{os.environ['RANK']}", True)
            if os.environ["RANK"] == "0":
                while not (DIRECTORY / "ready.1").exists():
                    time.sleep(0.01)
                sys.exit(7)
            while True:
                time.sleep(60)
        """,
        shutdown_timeout=1,
        **options,
    )
    finished = run_program(path)
    assert finished.returncode == 1, finished
    assert finished.duration < 40


@pytest.mark.parametrize(
    "number,options",
    [
        (signal.SIGTERM, FORK),
        (signal.SIGINT, FORK),
        pytest.param(signal.SIGTERM, {}, marks=pytest.mark.full),
        pytest.param(signal.SIGINT, {}, marks=pytest.mark.soak),
    ],
)
def test_a_signal_ends_workers_and_program(start_program, program, tmp_path, options, number):
    running = start_program(program(SLEEPER, **options))
    pids = running.wait_for(lambda _: pids_left(tmp_path))
    running.signal(number)
    finished = running.finish()
    assert finished.returncode != 0, finished
    assert f"the launcher received {number.name}" in finished.stderr
    assert not any(map(is_alive, pids))


def test_the_users_signal_handlers_are_back_afterwards(run_program, program, left):
    path = program(
        """
        def work():
            pass

        def mine(number, frame):
            pass

        def check():
            from dlrover_cli import LaunchConfig, elastic_launch

            numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
            for number in numbers:
                signal.signal(number, mine)
            config = LaunchConfig(1, 1, 2, start_method="fork")
            descriptors = []
            for _ in range(3):
                elastic_launch(config, work)()
                descriptors.append(len(os.listdir("/proc/self/fd")))
            leave("kept", [signal.getsignal(number) is mine for number in numbers])
            leave("descriptors", descriptors)

        check()
        """,
        function="lambda: None",
        **FORK,
    )
    finished = run_program(path)
    assert finished.returncode == 0, finished
    assert left("kept") == [True] * 4


@pytest.mark.parametrize(
    "options",
    [{}, FORK, pytest.param({"start_method": "forkserver"}, marks=pytest.mark.full)],
    ids=["spawn", "fork", "forkserver"],
)
def test_nothing_outlives_a_killed_program(start_program, program, tmp_path, options):
    running = start_program(program(SLEEPER, **options))
    pids = running.wait_for(lambda _: pids_left(tmp_path))
    running.kill()
    running.finish()
    eventually(lambda: not any(map(is_alive, pids)), what="the end of the workers")
    eventually(lambda: not running.processes(), what="the end of all processes")


def test_a_function_that_cannot_be_pickled_is_a_sentence(run_program, program):
    path = program("", function="lambda: None")
    finished = run_program(path)
    assert finished.returncode == 1, finished
    last = finished.stderr.strip().splitlines()[-1]
    assert "the worker function or its arguments cannot be pickled" in last


@pytest.mark.full
def test_a_launch_at_the_top_level_of_a_module_is_a_sentence(run_program, program):
    path = program("def work():\n    return 1\n")
    path.write_text(path.read_text().replace('if __name__ == "__main__":', "if True:"))
    finished = run_program(path)
    assert finished.returncode == 1, finished
    assert "while its own module is being imported" in finished.stderr


# ---- --run-path --------------------------------------------------------------------------------


@pytest.mark.full
def test_run_path_runs_the_script_in_a_spawned_process(launch, scripts, tmp_path):
    script = scripts.write(
        "path.py",
        """
        leave("path", name=__name__, argv=sys.argv, file=__file__, world_size=world_size)
        say(f"hello from rank {rank}")
        """,
    )
    finished = launch(["--run-path", "--nproc-per-node=2", script, "--lr", "0.1"])
    assert finished.returncode == 0, finished
    for fact in scripts.facts("path"):
        assert fact["name"] == "__main__"
        assert fact["argv"] == [str(script), "--lr", "0.1"]
        assert fact["world_size"] == 2
    assert sorted(finished.stdout.splitlines()) == ["hello from rank 0", "hello from rank 1"]


@pytest.mark.full
def test_run_path_keeps_exit_codes_and_signals(start, launch, scripts):
    finished = launch(["--run-path", "--nproc-per-node=2", scripts.crash(how=7, others="wait")])
    assert finished.returncode == 7, finished
    running = start(["--run-path", "--nproc-per-node=2", scripts.wait()])
    running.wait_for("ready 0")
    running.wait_for("ready 1")
    running.signal(signal.SIGTERM)
    assert running.finish().returncode == 128 + signal.SIGTERM
