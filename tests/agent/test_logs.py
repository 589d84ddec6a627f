"""From torch's log destinations to the streams of a worker."""

import os

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, Std

from dlrover_cli.agent.logs import RunLogsSpecs, Shown, StreamWishes, worker_streams
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


def streams_of(dest, local_rank=0, *, directory=None, is_shown=True, prefix="", **filters):
    wishes = StreamWishes(prefix, prefix or "[x]:", is_shown, directory, filters)
    return worker_streams(dest, local_rank, wishes)


# ---- streams -----------------------------------------------------------------------------------


def test_a_stream_without_a_file_goes_to_the_console():
    streams = streams_of(LogsDest(stdouts={0: ""}, stderrs={0: ""}))
    assert streams.stdout == StreamPlan(console=1)
    assert streams.stderr == StreamPlan(console=2)
    assert not streams.stderr.needs_pump


def test_a_stderr_on_the_console_is_kept_where_told():
    dest = LogsDest(stdouts={0: ""}, stderrs={0: ""})
    streams = streams_of(dest, directory="/run")
    assert streams.stderr == StreamPlan(
        file="/run/stderr.log", console=2, keep_tail=True, bounded=True, times="/run/stderr.times"
    )
    assert streams.stdout == StreamPlan(console=1)


def test_a_rank_that_is_not_shown_is_kept_for_the_verdict_alone():
    dest = LogsDest(stdouts={0: ""}, stderrs={0: os.devnull})
    streams = streams_of(dest, directory="/run", is_shown=False)
    assert streams.stdout == StreamPlan(file=os.devnull)
    assert (streams.stderr.file, streams.stderr.console) == ("/run/stderr.log", None)


def test_a_file_of_the_run_directory_has_its_times_beside_it():
    dest = LogsDest(stdouts={0: "/run/stdout.log"}, stderrs={0: "/elsewhere/stderr.log"})
    streams = streams_of(dest, directory="/run")
    assert streams.stdout == StreamPlan(file="/run/stdout.log", times="/run/stdout.times")
    assert streams.stderr == StreamPlan(file="/elsewhere/stderr.log")


def test_a_prefix_of_our_own_stands_before_lines_that_nobody_tees():
    streams = streams_of(LogsDest(stdouts={0: ""}, stderrs={0: ""}), prefix="[7] ")
    assert streams.stdout == StreamPlan(console=1, prefix="[7] ")
    assert streams.stdout.needs_pump


def test_a_redirected_stream_is_a_file_that_nobody_pumps():
    dest = LogsDest(stdouts={0: "/log/out"}, stderrs={0: "/log/err"})
    streams = streams_of(dest, directory="/run")
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


NAMES = {
    "role_name": "trainer",
    "rank": 15,
    "global_rank": 15,
    "local_rank": 7,
    "node_rank": 1,
    "host": "node-b",
    "attempt": 3,
}


@pytest.mark.parametrize(
    "template, prefix",
    [
        (None, "[trainer7]:"),
        ("", ""),
        ("${role_name} ${rank}/${local_rank}: ", "trainer 15/7: "),
        ("${host}.${node_rank} ${global_rank}#${attempt} ", "node-b.1 15#3 "),
        ("$rank $unknown ${also} $$", "15 $unknown ${also} $"),
    ],
)
def test_prefixes_of_teed_lines(template, prefix):
    assert Shown(teed_prefix=template).prefix_of(NAMES) == ("", prefix)


def test_a_prefix_of_our_own_is_before_every_line():
    shown = Shown("${host}:${rank} ", teed_prefix="${rank}")
    assert shown.prefix_of(NAMES) == ("node-b:15 ", "node-b:15 ")


def test_ranks_that_are_shown():
    assert Shown().shows(99)
    assert [rank for rank in range(20) if Shown(ranks=frozenset({1, 12})).shows(rank)] == [1, 12]
