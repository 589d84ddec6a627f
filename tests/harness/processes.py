"""Find every process of a test, wherever it was re-parented, by a token in its environment."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.harness.waiting import eventually

TOKEN_VARIABLE = "DLROVER_TEST_TOKEN"
# A forked launcher has its token written over the server's, in place: all have one length.
TOKEN_LENGTH = 32


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One live process, as /proc shows it."""

    pid: int
    parent: int
    session: int
    state: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} (parent {self.parent}, state {self.state}): {self.command}"


def descendants_and_orphans(token: str) -> list[ProcessInfo]:
    """Live processes (no zombies) whose token begins with this one."""
    needle = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        # Processes come and go while /proc is read, and some are not ours to read.
        with contextlib.suppress(OSError):
            environ = Path(entry.path, "environ").read_bytes()
            if needle in environ and any(e.startswith(needle) for e in environ.split(b"\0")):
                found.append(process_info(int(entry.name)))
    return [process for process in found if process.state not in "ZX"]


def process_info(pid: int) -> ProcessInfo:
    """Facts of one process; raises OSError when it is gone."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    state, parent, _group, session = stat.rpartition(")")[2].split()[:4]
    command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    return ProcessInfo(
        pid=pid,
        parent=int(parent),
        session=int(session),
        state=state,
        command=command.decode(errors="replace") or stat.partition("(")[2].rpartition(")")[0],
    )


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        return process_info(pid).state not in "ZX"
    except OSError:
        return False


def assert_no_process_left(token: str, deadline: float = 5.0) -> None:
    """Wait for the token's processes to go; kill and name those that stay."""
    try:
        eventually(lambda: not descendants_and_orphans(token), deadline)
    except AssertionError:
        left = kill_all(token)
        if left:
            names = "\n  ".join(str(process) for process in left)
            raise AssertionError(
                f"processes were left running after {deadline:g} s:\n  {names}"
            ) from None


def kill_all(token: str, deadline: float = 10.0) -> list[ProcessInfo]:
    """SIGKILL all processes of the token until none is left; returns whom it met."""
    met: dict[int, ProcessInfo] = {}
    end = time.monotonic() + deadline
    while live := descendants_and_orphans(token):
        for process in live:
            met[process.pid] = process
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() >= end:
            raise AssertionError(f"cannot be killed: {'; '.join(map(str, live))}")
        time.sleep(0.01)
    return list(met.values())
