"""A runner that waits is woken: by a call, by the end of another one, or by time, which is last."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from dlrover_cli.admission.book import Entry, opened_book
from dlrover_cli.admission.sessions import bell_of, hold_over
from dlrover_cli.admission.waking import Bell, Woken, ring
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.telemetry.process_identity import ProcessIdentity

pytestmark = pytest.mark.timeout(30)
LONG = 3600.0
"""Seconds; whoever waited for them would not be in time."""


def wait(bell: Bell, *others: ProcessIdentity, seconds: float = LONG) -> Woken:
    return bell.wait(others, seconds, nullcontext)


def test_a_call_wakes_and_many_are_one(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    ring(path)  # nobody is there yet, and nobody minds
    bell = Bell(path)
    for _ in range(70_000):  # more than a pipe holds
        ring(path)

    assert wait(bell) is Woken.CALLED
    while wait(bell, seconds=0.0) is not Woken.TIME_OUT:
        pass
    ring(path)
    assert wait(bell) is Woken.CALLED
    bell.close()


def test_the_end_of_another_runner_wakes(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "wake")
    other = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity.of(other.pid)
    assert wait(bell, identity, seconds=0.0) is Woken.TIME_OUT

    assert other.stdin is not None
    other.stdin.close()

    assert wait(bell, identity) is Woken.OTHER_ENDED
    other.wait()
    assert wait(bell, identity) is Woken.OTHER_ENDED, "it has ended before"
    bell.close()


def test_a_session_calls_those_that_it_concerns_and_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "extender.yaml").write_text("queues: {default: {capacity: 1}}")
    file = str(tmp_path / "extender.yaml")
    own = ProcessIdentity.own()
    bells = {}
    with opened_book(tmp_path) as opened:
        for number, run_id in enumerate(("first", "second")):
            entry = Entry(run_id, run_id, file, "default", 0, float(number), {}, own)
            opened.write(opened.book.with_entry(entry))
            os.makedirs(RunFiles.of(tmp_path, run_id).path)
            bells[run_id] = Bell(bell_of(tmp_path, run_id))

        hold_over(opened, tmp_path, file, print)
        assert wait(bells["first"]) is Woken.CALLED
        assert wait(bells["second"]) is Woken.CALLED, "it has a reason now"
        assert opened.book.entries["first"].node is not None

        hold_over(opened, tmp_path, file, print)
        assert wait(bells["first"], seconds=0.0) is Woken.TIME_OUT
        assert wait(bells["second"], seconds=0.0) is Woken.TIME_OUT, "nothing is new"

        opened.write(opened.book.without("first"))
        hold_over(opened, tmp_path, file, print)
        assert wait(bells["second"]) is Woken.CALLED
        assert opened.book.entries["second"].node is not None
    for bell in bells.values():
        bell.close()
