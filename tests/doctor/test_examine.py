"""All checks run at once, in time, and in order; one that fails or hangs costs its own answer."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrover_cli.doctor.commands import Commands
from dlrover_cli.doctor.examine import CHECKS, chosen_checks, examine
from dlrover_cli.doctor.finding import Finding, Level, ok, problem, warning, worst
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.errors import UsageError
from tests.doctor.machines import machine
from tests.harness.waiting import eventually


def fine(machine: Machine) -> Iterator[Finding]:
    yield ok("one", "is well")


def test_findings_come_in_the_order_of_the_checks_though_all_run_at_once(tmp_path: Path) -> None:
    second_is_done = threading.Event()

    def first(machine: Machine) -> Iterator[Finding]:
        assert second_is_done.wait(10)
        yield ok("first", "waited for the second")

    def second(machine: Machine) -> Iterator[Finding]:
        second_is_done.set()
        yield ok("second", "")

    waited: list[str] = []
    checks = {"first": first, "second": second}
    found = examine(machine(tmp_path, seconds=20.0), checks, waited.append)
    assert [name for name, _ in found] == ["first", "second"]
    assert "second" not in waited[1:]


def test_a_check_that_raises_costs_itself(tmp_path: Path) -> None:
    def wrong(machine: Machine) -> Iterator[Finding]:
        raise PermissionError(13, "Permission denied", "/proc/x")

    examined = dict(examine(machine(tmp_path), {"wrong": wrong, "fine": fine}))
    assert examined["wrong"][0].level is Level.WARNING
    assert "Permission denied" in examined["wrong"][0].seen
    assert examined["fine"][0].level is Level.OK


def test_a_check_that_hangs_costs_itself_and_no_more_than_the_time_of_one(tmp_path: Path) -> None:
    end = threading.Event()

    def hangs(machine: Machine) -> Iterator[Finding]:
        end.wait()
        yield ok("late", "")

    checks = {"a": hangs, "b": hangs, "fine": fine}
    try:
        examined = dict(examine(machine(tmp_path, seconds=0.1), checks))
    finally:
        end.set()
    assert [examined[name][0].level for name in checks] == [Level.PROBLEM, Level.PROBLEM, Level.OK]
    assert "doctor a --timeout" in examined["a"][0].fix


def test_checks_are_chosen_by_name_in_their_own_order() -> None:
    assert list(chosen_checks([])) == list(CHECKS)
    assert list(chosen_checks(["tmp", "shm"])) == ["shm", "tmp"]
    with pytest.raises(UsageError) as caught:
        chosen_checks(["troch"])
    assert caught.value.hint == "did you mean 'torch'?"


def test_the_worst_finding_counts() -> None:
    odd = warning("a", "b", why="c", fix="d")
    assert worst([]) is Level.OK
    assert worst([ok("a", "b"), odd]) is Level.WARNING
    assert worst([problem("a", "b", why="c", fix="d"), odd]) is Level.PROBLEM


def test_commands_that_run_are_ended_with_their_owner() -> None:
    commands = Commands()
    ended = []
    waiting = threading.Thread(
        target=lambda: ended.append(commands.run(["sleep", "1000"], {}, 500)), name="runs-sleep"
    )
    waiting.start()
    eventually(lambda: commands._running, what="the command runs")
    commands.close()
    waiting.join(10)
    assert [ran.status for ran in ended] == [-9]
    assert commands.run(["sleep", "1000"], {}, 500).status == -9


def test_a_command_out_of_time_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    assert Commands().run(["sh", "-c", "sleep 1000 & sleep 1000"], {}, 0.2).status is None
    assert time.monotonic() - began < 100
