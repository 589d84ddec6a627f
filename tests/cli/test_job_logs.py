"""`dlrover-job logs`: what workers have printed, and what they print while we look."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.cli.log_files import LineReader, WorkerLog
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.words import moment
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.runs import Runs, write_log
from tests.harness.launcher import Finished, Running


def logs(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main(["logs", *arguments]) == 0
    out, err = capsys.readouterr()
    return out, err


def test_one_rank_is_copied_as_it_is(runs: Runs, capsys) -> None:
    files = runs.add()
    write_log(files, 0, 0, "stdout", "step 1\nstep 2\n")
    write_log(files, 0, 0, "stderr", "a warning\n")
    assert logs(capsys) == ("step 1\nstep 2\na warning\n", "")


def test_lines_of_several_ranks_begin_with_theirs(runs: Runs, capsys) -> None:
    files = runs.add()
    for rank in (0, 1, 10):
        write_log(files, 0, rank, "stdout", f"one\n\nunfinished {rank}")
    assert logs(capsys)[0] == "".join(
        f"[rank {rank}] one\n[rank {rank}] \n" for rank in (0, 1, 10)
    ) + "".join(f"[rank {rank}] unfinished {rank}\n" for rank in (0, 1, 10))


def test_one_of_several_ranks_needs_no_name(runs: Runs, capsys) -> None:
    files = runs.add()
    for rank in range(3):
        write_log(files, 0, rank, "stdout", f"rank {rank} speaking\n")
    assert logs(capsys, "--rank", "1")[0] == "rank 1 speaking\n"
    assert (
        logs(capsys, "--rank", "0,2")[0]
        == logs(capsys, "--rank", "2", "--rank", "0")[0]
        == ("[rank 0] rank 0 speaking\n[rank 2] rank 2 speaking\n")
    )


def test_the_latest_attempt_is_shown_unless_another_one_is_asked_for(runs: Runs, capsys) -> None:
    files = runs.add()
    for attempt in (0, 2, 10):
        write_log(files, attempt, 0, "stdout", f"attempt {attempt}\n")
    assert logs(capsys)[0] == "attempt 10\n"
    assert logs(capsys, "--attempt", "2")[0] == "attempt 2\n"


@pytest.mark.parametrize(
    "arguments, message, hint",
    [
        (["--rank", "7"], "has no rank 7", "there are: 0, 1"),
        (["--rank", "one"], "--rank takes numbers and ranges", "--rank 0,8-15"),
        (["--attempt", "3"], "has no attempt 3", "there are: 0, 1"),
        (["--attempt", "0", "--rank", "1"], "has no rank 1", "there are: 0"),
        (["--runner", "--rank", "1"], "--runner has no ranks", "leave one"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    runs: Runs, arguments: list[str], message: str, hint: str
) -> None:
    files = runs.add()
    write_log(files, 0, 0, "stdout", "x")
    for rank in (0, 1):
        write_log(files, 1, rank, "stdout", "x")
    with pytest.raises(UsageError) as caught:
        main(["logs", *arguments])
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_run_without_output_says_so_on_stderr(runs: Runs, capsys) -> None:
    pending = runs.add("waits", RunState.PENDING)
    ended = runs.add("quiet")
    assert logs(capsys, "waits") == (
        "",
        f"run {pending.run_id} has no output yet; it is PENDING\n",
    )
    assert logs(capsys, "quiet") == ("", f"run {ended.run_id} has left no output\n")


def test_of_a_run_in_the_foreground_only_stderr_is_kept(runs: Runs, capsys) -> None:
    files = runs.add(argv=["train.py"])
    assert "only stderr" not in logs(capsys)[1]  # nobody knows yet
    write_log(files, 0, 0, "stderr", "a warning\n")
    out, err = logs(capsys)
    assert out == "a warning\n"
    assert err == "of a run in the foreground only stderr is kept, unless -r or -t ask for more\n"
    write_log(files, 0, 0, "stdout", "kept\n")
    assert logs(capsys) == ("kept\na warning\n", "")


def test_the_runners_own_log_is_shown_when_asked_for(runs: Runs, capsys) -> None:
    files = runs.add()
    files.runner_log.write_text("the runner speaks")
    write_log(files, 0, 0, "stdout", "a worker\n")
    assert logs(capsys, "--runner") == ("the runner speaks\n", "")


def test_bytes_that_are_no_text_pass_through(runs: Runs, capsysbinary) -> None:
    files = runs.add()
    write_log(files, 0, 0, "stdout", "").write_bytes(b"\xff\xfe\r50%\r100%\n")
    assert main(["logs"]) == 0
    assert capsysbinary.readouterr().out == b"\xff\xfe\r50%\r100%\n"


# ---- order, choice and form --------------------------------------------------------------------


def two_attempts(runs: Runs) -> RunFiles:
    files = runs.add()
    write_log(files, 0, 0, "stdout", "step 1\n", at=100.0)
    write_log(files, 0, 1, "stdout", "step 1\n", at=101.0)
    write_log(files, 0, 1, "stderr", "Error: rank 1 broke\n", at=103.0)
    write_log(files, 0, 0, "stdout", "step 2\n", at=102.0)
    write_log(files, 0, 0, "stderr", "error: peer is gone\n", at=104.5)
    write_log(files, 1, 0, "stdout", "step 3\n", at=110.0)
    write_log(files, 1, 1, "stdout", "step 3\n", at=110.5)
    return files


def test_lines_of_all_ranks_and_streams_are_in_the_order_of_time(runs: Runs, capsys) -> None:
    two_attempts(runs)
    assert logs(capsys, "--attempt", "0")[0] == (
        "[rank 0] step 1\n"
        "[rank 1] step 1\n"
        "[rank 0] step 2\n"
        "[rank 1] Error: rank 1 broke\n"
        "[rank 0] error: peer is gone\n"
    )


def test_all_attempts_are_shown_when_asked_for(runs: Runs, capsys) -> None:
    two_attempts(runs)
    out, _ = logs(capsys, "--attempt", "all", "--rank", "0")
    assert out == (
        "[attempt 0] step 1\n[attempt 0] step 2\n[attempt 0] error: peer is gone\n"
        "[attempt 1] step 3\n"
    )


def test_a_pattern_is_looked_for_in_all_ranks_and_attempts(runs: Runs, capsys) -> None:
    two_attempts(runs)
    assert logs(capsys, "--grep", "^error|step 3")[0] == (
        "[attempt 0 rank 0] error: peer is gone\n"
        "[attempt 1 rank 0] step 3\n"
        "[attempt 1 rank 1] step 3\n"
    )
    assert logs(capsys, "--grep", "^error", "-i", "--attempt", "0", "--rank", "1")[0] == (
        "Error: rank 1 broke\n"
    )


def test_a_pattern_that_matches_nothing_is_exit_code_1(runs: Runs, capsys) -> None:
    two_attempts(runs)
    assert main(["logs", "--grep", "nowhere"]) == 1
    assert capsys.readouterr() == ("", "")


def test_times_are_shown_when_asked_for(runs: Runs, capsys) -> None:
    two_attempts(runs)
    assert logs(capsys, "--times", "--attempt=1", "--rank=1")[0] == (
        f"{moment(110.5)}.500 step 3\n"
    )


def test_each_line_is_an_object_for_programs(runs: Runs, capsys) -> None:
    two_attempts(runs)
    write_log(runs.add("other"), 0, 12, "stderr", 'no time, "quoted" and no end')
    told = [json.loads(line) for line in logs(capsys, "train", "-o", "json")[0].splitlines()]
    assert told == [
        {
            "time": when,
            "attempt": 1,
            "rank": rank,
            "node": "node.1",
            "stream": "stdout",
            "line": "step 3",
        }
        for rank, when in ((0, 110.0), (1, 110.5))
    ]
    [other] = logs(capsys, "other", "-o", "json")[0].splitlines()
    assert json.loads(other)["line"] == 'no time, "quoted" and no end'
    assert json.loads(other)["time"] is None


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--attempt", "last"], "--attempt takes a number or 'all', not 'last'"),
        (["--grep", "(["], "--grep '([' is no pattern"),
        (["--runner", "--grep", "x"], "--runner has no ranks"),
    ],
)
def test_what_cannot_be_meant_is_refused(runs: Runs, arguments: list[str], message: str) -> None:
    two_attempts(runs)
    with pytest.raises(UsageError) as caught:
        main(["logs", *arguments])
    assert caught.value.message.startswith(message)


def test_a_copy_that_loses_its_middle_is_followed_on(runs: Runs) -> None:
    files = runs.add()
    path = write_log(files, 0, 0, "stderr", "x" * 1000 + "\n")
    reader = LineReader(WorkerLog(0, 0, path.parent), "stderr", path)
    assert len(list(reader.lines())) == 1
    path.write_text("x" * 100 + "\n")
    assert list(reader.lines()) == []
    write_log(files, 0, 0, "stderr", "later\n")
    assert [line.text for line in reader.lines()] == [b"later\n"]


# ---- following -------------------------------------------------------------------------------


@contextmanager
def owned_run(runs: Runs) -> Iterator[tuple[RunFiles, Callable[[], None]]]:
    """A run, and what lets it fail and its owner, a process, end."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        identity = ProcessIdentity.of(process.pid)
        files = runs.add(state=RunState.RUNNING, owner=identity)

        def end() -> None:
            with Ledger.open(runs.state) as ledger:
                record = RunRecord.open(files, ledger, print)
                record.move(RunState.FAILED, reason="it broke", exit_code=7)
                record.close()
            process.communicate("\n", timeout=30)

        yield files, end
    finally:
        process.kill()
        process.wait()


def test_following_goes_on_until_the_run_is_over(
    runs: Runs, start_job: Callable[..., Running]
) -> None:
    with owned_run(runs) as (files, end):
        write_log(files, 0, 0, "stdout", "before\n")
        following = start_job("logs", "-f")
        following.wait_for("before")
        write_log(files, 0, 0, "stderr", "later\n")
        following.wait_for("later")
        write_log(files, 0, 0, "stdout", "half a li")
        following.wait_for("half a li")
        write_log(files, 0, 0, "stdout", "ne, the last words")
        end()
        found = following.finish(30)
    assert found.returncode == 0
    assert found.stdout == "before\nlater\nhalf a line, the last words\n"
    assert found.stderr == f"run {files.run_id} (train) is FAILED, exit 7: it broke\n"


def test_following_sees_new_ranks_and_new_attempts(
    runs: Runs, start_job: Callable[..., Running]
) -> None:
    with owned_run(runs) as (files, end):
        following = start_job("logs", "-f", files.run_id)
        for rank in (0, 1):
            (files.nodes / "node.1" / "logs" / "attempt_0" / str(rank)).mkdir(parents=True)
        write_log(files, 0, 0, "stdout", "first\n")
        following.wait_for("[rank 0] first")
        write_log(files, 0, 1, "stdout", "the end of attempt 0")
        write_log(files, 1, 0, "stdout", "second\n")
        following.wait_for("second")
        end()
        found = following.finish(30)
    assert found.stdout == "[rank 0] first\n[rank 1] the end of attempt 0\nsecond\n"
    assert found.stderr.startswith("attempt 1:\n")


def test_following_a_run_that_is_over_shows_it_and_ends(
    runs: Runs, job: Callable[..., Finished]
) -> None:
    files = runs.add()
    write_log(files, 0, 0, "stdout", "all of it\n")
    found = job("logs", "-f", timeout=30)
    assert (found.returncode, found.stdout) == (0, "all of it\n")


def test_following_a_run_whose_process_is_killed_ends_too(
    runs: Runs, start_job: Callable[..., Running]
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    files = runs.add(state=RunState.RUNNING, owner=ProcessIdentity.of(process.pid))
    write_log(files, 0, 0, "stdout", "alive\n")
    following = start_job("logs", "-f")
    following.wait_for("alive")
    process.kill()
    process.communicate()
    found = following.finish(30)
    assert found.returncode == 0
    assert " is LOST: process " in found.stderr


def test_ctrl_c_ends_following_quietly_and_leaves_the_run_alone(
    runs: Runs, start_job: Callable[..., Running]
) -> None:
    with owned_run(runs) as (files, _end):
        write_log(files, 0, 0, "stdout", "before\n")
        following = start_job("logs", "-f")
        following.wait_for("before")
        following.signal(signal.SIGINT)
        found = following.finish(30)
        assert (found.returncode, found.stderr) == (130, "")
        with Ledger.open(runs.state) as ledger:
            assert ledger.row(files.run_id).state is RunState.RUNNING


def test_following_ends_when_nobody_reads_any_more(
    runs: Runs, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    script = tmp_path / "pipe.sh"
    script.write_text(f"'{JOB_PROGRAM}' logs -f | head -1\n")
    with owned_run(runs) as (files, _end):
        write_log(files, 0, 0, "stdout", "one\ntwo\n")
        found = launch([script], command=["bash"], timeout=30)
    assert (found.returncode, found.stdout, found.stderr) == (0, "one\n", "")
