"""From torch's log destinations to the streams of a worker."""

import os

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, Std

from dlrover_cli.agent.logs import RunLogsSpecs, line_prefix, worker_streams
from dlrover_cli.workers.streams import LineFilter, StreamPlan


def envs(count=2, attempt=0, first_rank=0):
    return {
        local: {
            "RANK": str(first_rank + local),
            "DLROVER_ATTEMPT": str(attempt),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_RUN_ID": "run",
        }
        for local in range(count)
    }


def streams_of(dest, local_rank=0, *, prefix="[x]:", stderr_copy=None, **filters):
    return worker_streams(dest, local_rank, prefix, stderr_copy, filters)


# ---- streams -----------------------------------------------------------------------------------


def test_a_stream_without_a_file_goes_to_the_console():
    streams = streams_of(LogsDest(stdouts={0: ""}, stderrs={0: ""}))
    assert streams.stdout == StreamPlan(console=1)
    assert streams.stderr == StreamPlan(console=2)
    assert not streams.stderr.needs_pump


def test_a_stderr_on_the_console_is_kept_where_told():
    dest = LogsDest(stdouts={0: ""}, stderrs={0: ""})
    streams = streams_of(dest, stderr_copy="/run/stderr.log")
    assert streams.stderr == StreamPlan(file="/run/stderr.log", console=2, keep_tail=True)
    assert streams.stdout == StreamPlan(console=1)


def test_a_redirected_stream_is_a_file_that_nobody_pumps():
    dest = LogsDest(stdouts={0: "/log/out"}, stderrs={0: "/log/err"})
    streams = streams_of(dest, stderr_copy="/run/stderr.log")
    assert streams.stdout == StreamPlan(file="/log/out")
    assert streams.stderr == StreamPlan(file="/log/err")
    assert not streams.stdout.needs_pump


def test_a_teed_stream_has_prefix_and_filter():
    dest = LogsDest(
        stdouts={0: "/log/out"},
        stderrs={0: ""},
        tee_stdouts={0: "/log/out"},
        filtered_stdout="/log/filtered",
    )
    plan = streams_of(dest, stdout=("loss",)).stdout
    assert (plan.file, plan.console, plan.prefix) == ("/log/out", 1, "[x]:")
    assert plan.line_filter == LineFilter("/log/filtered", ("loss",))
    assert plan.needs_pump


def test_torchs_own_destinations_are_understood(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path), redirects=Std.ERR, tee={0: Std.OUT})
    dest = specs.reify(envs())
    first, second = streams_of(dest, 0), streams_of(dest, 1)
    assert first.stdout.needs_pump
    assert first.stdout.file.endswith("attempt_0/0/stdout.log")
    assert not first.stderr.needs_pump
    assert second.stdout == StreamPlan(console=1)
    assert second.stderr.file.endswith("attempt_0/1/stderr.log")


def test_a_log_directory_of_dev_null_means_no_files(tmp_path):
    dest = DefaultLogsSpecs(os.devnull).reify(envs())
    streams = streams_of(dest)
    assert streams.stdout == StreamPlan(console=1)


# ---- the run directory -------------------------------------------------------------------------


def test_files_of_a_run_are_ordered_by_attempt_and_global_rank(tmp_path):
    specs = RunLogsSpecs(str(tmp_path), redirects=Std.ALL)
    environments = envs(attempt=3, first_rank=8)
    dest = specs.reify(environments)
    assert dest.stdouts[1] == str(tmp_path / "attempt_3" / "9" / "stdout.log")
    assert dest.error_files[0] == str(tmp_path / "attempt_3" / "8" / "error.json")
    assert environments[0]["TORCHELASTIC_ERROR_FILE"] == dest.error_files[0]
    assert (tmp_path / "attempt_3" / "8").stat().st_mode & 0o777 == 0o700


def test_later_attempts_never_touch_the_files_of_earlier_ones(tmp_path):
    specs = RunLogsSpecs(str(tmp_path), redirects=Std.ALL)
    first = specs.reify(envs(attempt=0))
    with open(first.stdouts[0], "w") as file:
        file.write("kept")
    second = specs.reify(envs(attempt=1))
    assert first.stdouts[0] != second.stdouts[0]
    with open(first.stdouts[0]) as file:
        assert file.read() == "kept"


@pytest.mark.parametrize(
    "redirects, tee, shown, stdout, teed",
    [
        (Std.NONE, Std.NONE, None, ["", ""], []),
        (Std.NONE, Std.NONE, {1}, [os.devnull, ""], []),
        (Std.OUT, Std.NONE, {1}, ["stdout.log", "stdout.log"], []),
        (Std.NONE, Std.OUT, {1}, ["stdout.log", "stdout.log"], [1]),
        ({0: Std.OUT}, {1: Std.ALL}, None, ["stdout.log", "stdout.log"], [1]),
    ],
)
def test_redirects_tees_and_the_rank_filter_together(tmp_path, redirects, tee, shown, stdout, teed):
    dest = RunLogsSpecs(str(tmp_path), redirects, tee, shown).reify(envs())
    names = [
        path if path in ("", os.devnull) else os.path.basename(path)
        for path in (dest.stdouts[0], dest.stdouts[1])
    ]
    assert names == stdout
    assert sorted(dest.tee_stdouts) == teed


# ---- prefixes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template, prefix",
    [
        (None, "[trainer1]:"),
        ("", ""),
        ("${role_name} ${rank}/${local_rank}: ", "trainer 5/1: "),
        ("$rank $unknown ${also} $$", "5 $unknown ${also} $"),
    ],
)
def test_prefixes(template, prefix):
    assert line_prefix(template, "trainer", 5, 1) == prefix
