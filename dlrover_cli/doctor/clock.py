"""The clock: whether it goes, whether somebody turns it, and whether it is kept right.

Decisions do not depend on wall clocks. What a person reads does: events and logs of many nodes are
told apart by their times.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from dlrover_cli import __file__ as _package
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import moment

_LOOK_SECONDS = 0.2
_JUMP = 0.05
_WHY = "events and logs of several nodes cannot be put in order, and certificates are refused"


def check_clock(machine: Machine) -> Iterator[Finding]:
    """Against the monotonic one, the age of our own files, and the service that keeps it."""
    before, started = time.time(), time.monotonic()
    time.sleep(_LOOK_SECONDS)
    jump = (time.time() - before) - (time.monotonic() - started)
    yield judge_clock(time.time(), jump, installed_at())
    yield from _kept(machine)


def judge_clock(now: float, jump: float, installed: float) -> Finding:
    """`jump` is how far it went beyond the monotonic one, `installed` when our files were made."""
    if now < installed - 86400:
        return problem(
            "clock",
            f"it is {moment(now)} here, before this program was installed",
            why=_WHY,
            fix="set the clock, and start chronyd or systemd-timesyncd",
        )
    if abs(jump) > _JUMP:
        return warning(
            "clock",
            f"it was turned by {jump:+.2f} s while we looked",
            why=_WHY,
            fix="let one service only keep the time: `timedatectl status`",
        )
    return ok("clock", f"{moment(now)}, and goes evenly")


def installed_at() -> float:
    return Path(_package).stat().st_mtime


def _kept(machine: Machine) -> Iterator[Finding]:
    if machine.which("timedatectl") is None:
        return
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    ran = machine.run(command, machine.environ, machine.patience)
    if ran.status != 0:  # no systemd here, as in a container: whose clock it is, we cannot know
        return
    if ran.out.strip() == "yes":
        yield ok("clock", "kept by NTP")
        return
    yield warning(
        "clock",
        "not kept by NTP",
        why="it drifts, and times of several nodes cannot be compared",
        fix="timedatectl set-ntp true, or start chronyd",
    )
