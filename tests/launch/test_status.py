"""The status line's contents: what it knows after which events, and what of that fits a row."""

from dataclasses import replace

import pytest

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.launch.status.showing import is_wanted
from dlrover_cli.launch.status.state import RunStatus, after_event, after_samples
from dlrover_cli.launch.status.text import ASCII, columns, line_of, shortened
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState

NOW = 1000.0
NEW = RunStatus(since=10.0)
RANK = RankSample(0, 0, 7, RankState.RUNNING, WorkerPhase.TRAINING, 1234, 3.21, 50.0, 1 << 30, None)
SAMPLE = NodeSample(NOW, "run", "here", 0, 1, 2, 1, 1, 0, False, (RANK, replace(RANK, steps=9)))
RUNNING = RunStatus(doing="", since=NOW - 65, attempt=1, world_size=8, nodes=2)
FAILED = replace(RUNNING, failure="rank 3 on b exited with code 1 (ValueError: no)", failed_at=880)


def told(*events, status=NEW):
    """The status after events of (kind, time, data)."""
    for kind, when, data in events:
        status = after_event(status, {"kind": kind, "time": when, "attempt": 1, "data": data})
    return status


def shown(status, now=NOW, width=200):
    return line_of(status, now, width).removeprefix("dlrover-run: ")


# ---- what is known -----------------------------------------------------------------------------


def test_a_start_is_told_phase_by_phase():
    steps = [
        ("run_started", 10.0, {}),
        ("rendezvous_started", 11.0, {"backend": "c10d"}),
        ("rendezvous_completed", 14.0, {"nodes": 2, "world_size": 16}),
        ("workers_started", 16.0, {}),
    ]
    lines = [shown(told(*steps[: n + 1]), now=20.0) for n in range(len(steps))]
    assert lines == [
        "starting, 10s",
        "meeting the other nodes (c10d), 9s",
        "preparing the workers, 6s · 16 ranks on 2 nodes",
        "attempt 1 · 16 ranks on 2 nodes · running 4s",
    ]


def test_nodes_that_are_missing_are_counted_since_the_wait_began():
    status = told(
        ("rendezvous_started", 10.0, {"backend": "dlrover"}),
        ("rendezvous_arrivals", 12.0, {"nodes": 1, "wanted": 4}),
        ("rendezvous_arrivals", 40.0, {"nodes": 3, "wanted": 4}),
    )
    assert shown(status, now=45.0) == "waiting for nodes: 3 of 4 are there, 35s"


def test_a_failure_is_told_with_what_follows_and_stays_in_mind():
    decision = {"action": "restart_workers", "backoff": 4.0, "cause": "rank 3 on b was killed"}
    status = told(("decision", NOW, decision), status=RUNNING)
    assert shown(status) == (
        "restarting the workers, in 4s · attempt 1 · 8 ranks on 2 nodes · "
        "failure 0s ago: rank 3 on b was killed"
    )
    again = told(("workers_started", NOW + 5, {}), status=status)
    assert shown(again, now=NOW + 125).endswith("failure 2m ago: rank 3 on b was killed")


def test_a_change_of_members_is_no_failure():
    decision = {"action": "admit", "backoff": 0.0, "cause": None}
    assert told(("decision", NOW, decision), status=RUNNING).failure == ""


def test_a_manager_that_waits_says_for_what_and_since_when():
    refused = ("placement", NOW, {"places": {}, "reason": "1 of 2 nodes has 4 GPUs"})
    later = ("placement", NOW + 30, {"places": {}, "reason": "1 of 2 nodes has 4 GPUs"})
    status = told(refused, later)
    assert shown(status, now=NOW + 60) == "waiting for nodes: 1 of 2 nodes has 4 GPUs, 1m"


def test_a_job_in_slurms_queue_says_why():
    waiting = ("slurm_state", NOW, {"state": "PENDING", "reason": "Priority", "nodes": ""})
    assert shown(told(waiting)) == "Slurm job is PENDING (Priority), 0s"


def test_events_of_other_kinds_change_nothing():
    assert told(("extension_loaded", NOW, {})) == NEW


def test_samples_bring_steps_and_rate():
    status = after_samples(RUNNING, [SAMPLE])
    assert shown(status) == "attempt 1 · 2 ranks · step 1,234 · 3.2 steps/s"


def test_a_sample_of_an_earlier_attempt_is_of_no_interest():
    status = replace(RUNNING, attempt=2)
    assert after_samples(status, [SAMPLE]) == status


def test_a_node_that_is_done_waits_for_the_others():
    done = replace(SAMPLE, nodes=2, ranks=(replace(RANK, state=RankState.SUCCEEDED),))
    assert shown(after_samples(RUNNING, [done])).startswith(
        "done here; waiting for the other nodes, 0s"
    )


# ---- what fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", range(1, 140))
def test_no_line_is_wider_than_its_row(width):
    status = replace(after_samples(FAILED, [SAMPLE]), failure="漢字" * 30)
    assert columns(line_of(status, NOW, max(width, 30))) <= max(width, 30)


def test_the_failure_is_cut_where_the_row_ends():
    line = line_of(FAILED, NOW, 90)
    assert columns(line) <= 90
    assert line.endswith("…")
    assert "failure 2m ago" in line


def test_a_terminal_without_unicode_gets_none():
    assert line_of(FAILED, NOW, 80, ASCII).isascii()


def test_a_workers_escapes_do_not_reach_the_terminal():
    status = replace(RUNNING, failure="\033[2J\n\x07evil", failed_at=NOW)
    assert line_of(status, NOW, 200).isprintable()


def test_slow_steps_have_seconds():
    line = shown(replace(RUNNING, steps=5, rate=0.1))
    assert line.endswith("step 5 · 10s/step")


@pytest.mark.parametrize(
    "text, width, expected",
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字漢字", 5, "漢字…"), ("漢字漢字", 4, "漢…")],
)
def test_wide_characters_count_twice(text, width, expected):
    assert shortened(text, width) == expected


# ---- when there is none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, environ",
    [
        ({"quiet": True}, {}),
        ({"json_output": True}, {}),
        ({"compat": "torchrun"}, {}),
        ({}, {"CI": "true"}),
        ({}, {"NO_COLOR": "1"}),
        ({}, {"TERM": "dumb"}),
        ({}, {"TERM": ""}),
    ],
)
def test_whoever_does_not_want_it_gets_no_line(settings, environ, monkeypatch):
    monkeypatch.setattr("os.isatty", lambda fd: True)
    usual = {"TERM": "xterm"}
    assert is_wanted(LaunchSettings(training_script="train.py"), usual)
    wanted = LaunchSettings(training_script="train.py", **settings)
    assert not is_wanted(wanted, usual | environ)


def test_without_a_terminal_there_is_no_line(monkeypatch):
    monkeypatch.setattr("os.isatty", lambda fd: False)
    assert not is_wanted(LaunchSettings(training_script="train.py"), {"TERM": "xterm"})
