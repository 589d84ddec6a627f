"""A state directory that cannot be written, is full, or loses its ledger under living runs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from tests.harness.waiting import eventually
from tests.jobs.submitted import PATIENCE, PROGRAM, Jobs, assert_private, play, shell

pytestmark = pytest.mark.full  # real jobs, one after the other

is_root = pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def on_disk(jobs: Jobs, disk: Path) -> Jobs:
    """The same project, its runs kept on that disk."""
    (jobs.home / "state").symlink_to(disk)
    return replace(jobs, environ={**jobs.environ, "XDG_STATE_HOME": str(jobs.home / "state")})


def fill(disk: Path) -> Path:
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            return path


def use_up_last_page(path: Path) -> None:
    """A file of such a disk has whole pages: let the next line need a new one."""
    remark = '{"kind": "remark", "data": "%s"}\n'
    missing = -(path.stat().st_size + len(remark % "")) % os.sysconf("SC_PAGE_SIZE")
    with path.open("a") as file:
        file.write(remark % ("x" * missing))


def test_one_that_cannot_be_made_refuses_the_submission(jobs: Jobs) -> None:
    (jobs.home / "state").write_text("a file")
    refused = jobs.command("submit", jobs.write({"a": shell(":")}), check=False)
    assert refused.returncode != 0
    assert "cannot be" in refused.stderr
    assert "XDG_STATE_HOME" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("argv", [["list"], ["cleanup", "--older-than", "0s"], ["stop", "one"]])
def test_one_that_cannot_be_read_is_told_in_a_sentence(jobs: Jobs, argv: list[str]) -> None:
    jobs.submit_one(**shell(":")).ended()
    without = "--bounding-set=-dac_override,-dac_read_search"  # what root may read in any case
    privileges = ["setpriv", without] if os.getuid() == 0 else []
    jobs.state.chmod(0)
    try:
        refused = subprocess.run(
            [*privileges, sys.executable, PROGRAM, *argv],
            env=jobs.environ,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        jobs.state.chmod(0o700)
    assert refused.returncode == 1
    error, hint = refused.stderr.splitlines()
    assert error.endswith("cannot be used: Permission denied")
    assert "XDG_STATE_HOME" in hint


@is_root
def test_one_that_cannot_be_written_refuses_the_submission(jobs: Jobs, small_disk: Path) -> None:
    on_disk(jobs, small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused = jobs.command("submit", jobs.write({"a": shell(":")}), check=False)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "Read-only file system" in refused.stderr


@is_root
def test_runs_of_one_that_cannot_be_written_can_be_looked_at(jobs: Jobs, small_disk: Path) -> None:
    archive = on_disk(jobs, small_disk)
    run = archive.submit_one(**shell("echo kept"))
    run.ended()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    listed = archive.command("list", "-o", "json")
    assert run.run_id in listed.stdout
    [line] = listed.stderr.splitlines()
    assert line.endswith("its directory cannot be written; the run directories are read instead")
    assert archive.command("logs", run.run_id).stdout == "kept\n"
    refused = archive.command("cleanup", run.run_id, check=False)
    assert refused.returncode == 1
    assert "Read-only file system" in refused.stderr
    assert "Traceback" not in refused.stderr


@is_root
class TestFull:
    def test_past_runs_can_be_looked_at_and_removed_to_make_room(
        self, jobs: Jobs, small_disk: Path
    ) -> None:
        """Nobody has the ledger open any more, and to open it takes room."""
        full = on_disk(jobs, small_disk)
        first, second = full.submit(a=shell("echo a"), b=shell("echo b"))
        first.ended()
        second.ended()
        filler = fill(small_disk)
        assert set(full.listed()) == {first.run_id, second.run_id}
        assert full.command("logs", first.run_id).stdout == "a\n"
        removed = full.command("cleanup", "--older-than", "0s")
        assert f"removed {first.run_id} (a)" in removed.stdout
        assert full.runs() == []
        filler.unlink()
        assert full.listed() == {}

    def test_it_refuses_the_submission_and_leaves_nothing(
        self, jobs: Jobs, small_disk: Path
    ) -> None:
        full = on_disk(jobs, small_disk)
        full.submit_one(**shell(":")).ended()
        before = full.runs()
        fill(small_disk)
        refused = full.command("submit", full.write({"a": shell(":")}), check=False)
        assert refused.returncode != 0
        assert "free space" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert full.runs() == before

    def test_a_run_goes_on_and_can_be_stopped(self, jobs: Jobs, small_disk: Path) -> None:
        full = on_disk(jobs, small_disk)
        run = full.submit_one(**shell("sleep 600"))
        run.wait_for(RunState.RUNNING)
        filler = fill(small_disk)
        stopped = full.command("stop", "--grace=1", run.run_id, check=False)
        assert "Traceback" not in stopped.stderr
        assert not run.owner.is_alive()
        filler.unlink()
        # What it could not write down, nobody knows; but nothing of it is left.
        full.command("stop", run.run_id)
        assert run.story.state is RunState.KILLED

    def test_what_could_not_be_recorded_is_recorded_later(
        self, jobs: Jobs, small_disk: Path
    ) -> None:
        full = on_disk(jobs, small_disk)
        run = full.submit_one(**play(submit_job="meet", wait="until_end"))
        full.meet("submit_job")
        use_up_last_page(run.files.events)
        filler = fill(small_disk)
        before = run.states
        full.let_go("submit_job")
        eventually(lambda: "wait" in full.calls(), PATIENCE)
        assert run.states == before
        filler.unlink()
        full.end_job()
        run.ended()
        assert run.states == ["PENDING", "STARTING", "RUNNING", "FINISHED"], run.log
        assert full.listed()[run.run_id]["state"] == "FINISHED"

    def test_a_job_that_ends_meanwhile_is_cleaned_up(self, jobs: Jobs, small_disk: Path) -> None:
        full = on_disk(jobs, small_disk)
        run = full.submit_one(**play(wait="until_end"))
        run.wait_for(RunState.RUNNING)
        filler = fill(small_disk)
        full.end_job()
        run.ended()
        assert jobs.calls().count("cleanup_job") == 1
        filler.unlink()
        assert full.listed()[run.run_id]["state"] in ("FINISHED", "LOST")
        full.command("cleanup", run.run_id)
        assert not full.runs()


class TestTheLedger:
    """It is an index; the runs are in their directories."""

    @pytest.mark.parametrize(
        "how", ["deleted", "corrupted", pytest.param("all_of_it_deleted", marks=pytest.mark.full)]
    )
    def test_runs_outlive_it(self, jobs: Jobs, how: str) -> None:
        done = jobs.submit_one(**play())
        done.ended()
        first, second = jobs.submit(a=play(wait="until_end"), b={**shell("echo b"), "after": ["a"]})
        first.wait_for(RunState.RUNNING)
        ledger = jobs.state / "ledger.db"
        if how == "corrupted":
            ledger.write_bytes(b"not a database at all, and long enough to be taken for one" * 50)
        else:
            names = "ledger.db*" if how == "all_of_it_deleted" else "ledger.db"
            for path in jobs.state.glob(names):
                path.unlink()
        listed = jobs.listed()
        assert {run_id: run["state"] for run_id, run in listed.items()} == {
            done.run_id: "FINISHED",
            first.run_id: "RUNNING",
            second.run_id: "PENDING",
        }
        jobs.end_job()
        assert second.ended().state is RunState.FINISHED
        states = {run["state"] for run in jobs.listed().values()}
        assert states == {"FINISHED"}
        assert "Traceback" not in first.log + second.log
        assert_private(jobs.state)

    def test_a_ledger_that_nobody_can_use_costs_a_line_and_not_the_run(self, jobs: Jobs) -> None:
        first, second = jobs.submit(a=play(wait="until_end"), b={**shell("echo b"), "after": ["a"]})
        first.wait_for(RunState.RUNNING)
        for path in jobs.state.glob("ledger.db*"):
            path.unlink()
        lock = jobs.state / "ledger.db.lock"
        lock.mkdir()
        jobs.end_job()
        assert second.ended().state is RunState.FINISHED, second.log
        assert "goes on without it" in first.log
        lock.rmdir()
        assert {run["state"] for run in jobs.listed().values()} == {"FINISHED"}

    def test_a_runner_that_starts_without_a_ledger_lives_its_run(self, jobs: Jobs) -> None:
        """Its submitter is let go only after the ledger's lock has become a directory."""
        path = jobs.write({"a": shell("echo a")})
        (jobs.project / "submit.py").write_text(
            "import os, shutil\n"
            "from pathlib import Path\n"
            "from dlrover_cli.jobs import submission\n"
            "spawn = submission._spawn\n"
            "def spoil(*arguments):\n"
            "    runner = spawn(*arguments)\n"
            f"    for path in Path({str(jobs.state)!r}).glob('ledger.db*'): path.unlink()\n"
            f"    os.mkdir({str(jobs.state / 'ledger.db.lock')!r})\n"
            "    return runner\n"
            "submission._spawn = spoil\n"
            f"submission.submit(Path({str(path)!r}), os.environ, print)\n"
        )
        subprocess.run(
            [sys.executable, "submit.py"], cwd=jobs.project, env=jobs.environ, check=True
        )
        [run] = jobs.runs()
        assert run.ended().state is RunState.FINISHED, run.log
        assert "the run goes on without it" in run.log
        (jobs.state / "ledger.db.lock").rmdir()
        assert jobs.listed()[run.run_id]["state"] == "FINISHED"


def test_runs_that_take_too_much_are_told_of_in_one_line(jobs: Jobs) -> None:
    run = jobs.submit_one(**shell("head -c 100000 /dev/zero"))
    run.ended()
    eventually(lambda: jobs.listed()[run.run_id]["size"], PATIENCE)
    limited = replace(jobs, environ={**jobs.environ, "DLROVER_STATE_LIMIT": "50KB"})
    for argv in (["list"], ["submit", jobs.write({"b": shell(":")})]):
        said = limited.command(*argv).stderr
        [line] = [line for line in said.splitlines() if "DLROVER_STATE_LIMIT" in line]
        assert "cleanup --older-than" in line
        assert "DLROVER_STATE_LIMIT" not in jobs.command(*argv).stderr
    for each in jobs.runs():
        each.ended()
    wrong = replace(jobs, environ={**jobs.environ, "DLROVER_STATE_LIMIT": "much"})
    assert "DLROVER_STATE_LIMIT" in wrong.command("list").stderr
