"""Beat pages: made by the agent, beaten by the worker, read after its death, gone at the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dlrover_cli
from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.workers import beats
from dlrover_cli.workers.beats import Beat, BeatDirectory, BeatPage, steps_done
from dlrover_cli.workers.bootstrap.in_worker import page as layout
from tests.harness.waiting import eventually
from tests.workers.bootstrapped import Workers

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


class TestPage:
    def test_a_new_page_says_that_nothing_is_known(self, tmp_path: Path) -> None:
        page = BeatPage(tmp_path / "beat")
        beat = page.read()
        assert beat == Beat()
        assert (beat.phase, beat.last_ns, beat.usual_step) == (WorkerPhase.UNKNOWN, 0, None)
        page.close()
        page.close()
        assert not page.path.exists()
        assert page.read() == beat

    def test_a_worker_is_in_its_start_up_at_first(self, workers: Workers) -> None:
        with workers.running("print('ready'); input()") as worker:
            beat = worker.page.read()
            assert (beat.pid, beat.phase) == (worker.pid, WorkerPhase.START_UP)
            assert beat.stack_signal == 57

    def test_what_was_beaten_outlives_the_worker(self, workers: Workers) -> None:
        ended = workers.run(
            f"""
            import os, signal, sys
            sys.path.insert(0, {str(REPOSITORY)!r})
            import dlrover_cli
            dlrover_cli.heartbeat()
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
        assert (ended.status, ended.beat.heartbeats) == (-9, 1)

    def test_the_usual_step_is_the_average(self) -> None:
        assert Beat(steps=1, first_step_ns=5, step_ns=5).usual_step is None
        beat = Beat(steps=5, first_step_ns=1_000_000_000, step_ns=3_000_000_000)
        assert beat.usual_step == 0.5

    def test_no_number_is_ever_half_written(self, tmp_path: Path) -> None:
        """A writer turns all bits on and off as fast as it can; a reader sees all or none."""
        page = BeatPage(tmp_path / "beat")
        code = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from dlrover_cli.workers.bootstrap.in_worker import page
cells = page.open_page(sys.argv[1]).cells()
print("ready", flush=True)
while True:
    cells[page.BEATS] = 2**64 - 1
    cells[page.BEATS] = 0
"""
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(page.path)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            seen = set()
            end = time.monotonic() + 20
            while len(seen) < 2 and time.monotonic() < end:
                seen |= {page.read().beats for _ in range(20_000)}
            assert seen == {0, 2**64 - 1}
        finally:
            writer.kill()
            writer.communicate()
            page.close()

    def test_steps_are_those_of_the_furthest_worker(self) -> None:
        assert steps_done({}) is None
        assert steps_done({0: Beat(), 1: Beat()}) is None
        assert steps_done({0: Beat(steps=4), 1: Beat(steps=5), 2: Beat()}) == 5


class TestDirectory:
    def test_it_is_private_in_memory_and_gone_at_the_end(self) -> None:
        with BeatDirectory() as directory:
            page = directory.create("0")
            assert directory.path.stat().st_mode & 0o777 == 0o700
            assert page.path.stat().st_mode & 0o777 == 0o600
            assert page.path.stat().st_blocks > 0, "a hole could be filled too late"
            if os.access("/dev/shm", os.W_OK):
                assert directory.path.parent == Path("/dev/shm")
        assert not directory.path.exists()
        assert page.read() == Beat()  # what is mapped stays
        page.close()
        directory.close()

    def test_without_shared_memory_it_is_a_temporary_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(beats, "_SHARED_MEMORY", tmp_path / "missing")
        monkeypatch.setattr(beats.tempfile, "tempdir", str(tmp_path))
        with BeatDirectory() as directory:
            assert directory.path.parent == tmp_path

    def test_that_of_a_killed_agent_is_removed_by_the_next(self, tmp_path: Path) -> None:
        code = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(REPOSITORY)!r})
from dlrover_cli.workers.beats import BeatDirectory
directory = BeatDirectory(Path(sys.argv[1]))
directory.create("0")
print(directory.path, flush=True)
time.sleep(60)
"""
        agent = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert agent.stdout is not None
        left = Path(agent.stdout.readline().strip())
        with BeatDirectory(tmp_path):
            assert left.exists(), "its agent is alive"
        agent.kill()
        agent.communicate()
        with BeatDirectory(tmp_path) as directory:
            assert not left.exists()
            assert list(tmp_path.iterdir()) == [directory.path]


class TestHeartbeat:
    PRELUDE = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import dlrover_cli, os\n"

    def test_a_worker_beats_and_is_in_training_from_then_on(self, workers: Workers) -> None:
        before = time.monotonic_ns()
        ended = workers.run(self.PRELUDE + "for _ in range(3): dlrover_cli.heartbeat()")
        assert ended.status == 0, ended.stderr
        assert ended.beat.heartbeats == 3
        assert ended.beat.phase is WorkerPhase.TRAINING
        assert before < ended.beat.heartbeat_ns == ended.beat.last_ns < time.monotonic_ns()

    def test_it_needs_neither_torch_nor_much_time(self, workers: Workers) -> None:
        ended = workers.run(
            self.PRELUDE
            + """
import time
dlrover_cli.heartbeat()
def seconds():
    start = time.perf_counter()
    for _ in range(1000):
        dlrover_cli.heartbeat()
    return time.perf_counter() - start
print(min(seconds() for _ in range(20)) / 1000 < 5e-6, "torch" in sys.modules)
"""
        )
        assert ended.stdout == "True False\n", ended.stderr

    def test_from_dlrover_cli_import_heartbeat(self, workers: Workers) -> None:
        ended = workers.run(
            self.PRELUDE + "from dlrover_cli import heartbeat; heartbeat(); heartbeat()"
        )
        assert ended.beat.heartbeats == 2, ended.stderr

    def test_outside_of_a_worker_it_does_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DLROVER_BEAT_FILE", raising=False)
        dlrover_cli.heartbeat()

    def test_a_variable_that_means_nothing_here_is_ignored(self, workers: Workers) -> None:
        for value in ("/nowhere/beat", "/", str(workers.write("x = 1"))):
            ended = workers.run_plain(
                self.PRELUDE + "dlrover_cli.heartbeat()", env={"DLROVER_BEAT_FILE": value}
            )
            assert (ended.status, ended.stderr) == (0, "")

    def test_processes_of_the_worker_do_not_beat_for_it(self, workers: Workers) -> None:
        ended = workers.run(
            self.PRELUDE
            + f"""
import subprocess
subprocess.run([sys.executable, "-c", {self.PRELUDE + "dlrover_cli.heartbeat()"!r}], check=True)
dlrover_cli.heartbeat()
if os.fork() == 0:
    dlrover_cli.heartbeat()
    os._exit(0)
os.wait()
"""
        )
        assert ended.beat.heartbeats == 1, ended.stderr

    def test_a_program_without_our_bootstrap_beats_by_its_first_caller(
        self, workers: Workers
    ) -> None:
        ended = workers.run(self.PRELUDE + "dlrover_cli.heartbeat()", python=sys.executable)
        env, _, page = workers.environment(python=False)
        subprocess.run(
            ["sh", "-c", f'"{sys.executable}" "{workers.script}"; true'], env=env, check=True
        )
        assert page.read().heartbeats == ended.beat.heartbeats == 1
        page.close()

    def test_a_script_that_executed_itself_again_beats_on(self, workers: Workers) -> None:
        ended = workers.run(
            self.PRELUDE
            + """
dlrover_cli.heartbeat()
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
"""
        )
        assert ended.beat.heartbeats == 2, ended.stderr


def test_only_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    page = BeatPage(tmp_path / "beat")
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    theirs = layout.open_page(str(page.path))
    theirs.write(layout.PID, sleeper.pid)
    assert not theirs.claim()
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert eventually(theirs.claim)
    assert page.read().pid == os.getpid()
    theirs.close()
    page.close()
