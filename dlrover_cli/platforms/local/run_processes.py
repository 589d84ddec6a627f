"""The processes of a run on this host, found wherever they went.

A process belongs to a run if its environment says so (`DLROVER_RUN_ID`, inherited by whoever left
the session or lost its parent), if it is known from a record, or if it descends from one that
belongs and names no other run: what a job submits is a run of its own. Whoever clears its
environment, leaves the session and loses its parent cannot be found, which is how a process is made
to outlive its job on purpose: `env -u DLROVER_RUN_ID setsid …`.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlrover_cli.telemetry.process_identity import ProcessIdentity

RUN_ID_VARIABLE = "DLROVER_RUN_ID"

_MOST_ROUNDS = 100
"""On a machine where processes come and go, looking has to have an end."""
_PREFIX = f"{RUN_ID_VARIABLE}=".encode()


@dataclass(frozen=True, slots=True)
class Seen:
    """One living process as /proc showed it."""

    identity: ProcessIdentity
    parent: int
    group: int
    session: int
    run_id: str | None
    """The run that its environment names, if it can be read and names one."""

    def is_older(self, other: "Seen") -> bool:
        """Whether it can have started the other one; else it was given the pid of who did."""
        return (self.identity.start_time or 0) <= (other.identity.start_time or 0)


@dataclass(slots=True)
class RunProcesses:
    """What is known of a run's processes; it grows with every look."""

    run_id: str
    recorded: Collection[ProcessIdentity]
    spare: Collection[int]
    """Pids that are never found."""
    _met: set[ProcessIdentity] = field(default_factory=set)
    """Once of the run, always of it; unless it begins another one."""
    _last: dict[int, Seen] = field(default_factory=dict)
    """Everybody at the last look, of the run or not; the spared ones left out."""

    def look(self, at_sight: Callable[[ProcessIdentity], None] | None = None) -> list[Seen]:
        """Those of the run that live now, each handed to ``at_sight`` as soon as it is known."""
        self._last = {}
        looked_at: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            if not self._look_once(looked_at, at_sight):
                break
        found = self._belonging()
        for each in found:
            self._met.add(each.identity)
            if at_sight is not None:
                at_sight(each.identity)
        return found

    def _look_once(
        self, looked_at: set[int], at_sight: Callable[[ProcessIdentity], None] | None
    ) -> bool:
        """Look at everybody new. True if somebody was gone by then: it may have left a child."""
        is_anybody_gone = False
        for pid in _pids():
            if pid in looked_at or pid in self.spare:
                continue
            looked_at.add(pid)
            seen = look_at(pid)
            if seen is None:
                is_anybody_gone = True
                continue
            self._last[pid] = seen
            if at_sight is not None and self._is_marked(seen):
                at_sight(seen.identity)
        return is_anybody_gone

    def groups(self, found: Sequence[Seen]) -> dict[int, Seen]:
        """Process groups in which everybody is of the run, each with one of its members."""
        pids = {each.identity.pid for each in found}
        mixed = {each.group for pid, each in self._last.items() if pid not in pids}
        mixed |= {seen.group for pid in self.spare if (seen := look_at(pid)) is not None}
        return {each.group: each for each in found if each.group not in mixed}

    def _belonging(self) -> list[Seen]:
        found = {pid: each for pid, each in self._last.items() if self._is_marked(each)}
        while more := {
            pid: each
            for pid, each in self._last.items()
            if pid not in found and _follows(each, found)
        }:
            found |= more
        return list(found.values())

    def _is_marked(self, seen: Seen) -> bool:
        if seen.identity in self.recorded:
            return True
        if seen.run_id is None:
            return seen.identity in self._met
        return seen.run_id == self.run_id


def own_line() -> frozenset[int]:
    """The pids of this process and of its ancestors."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        seen = look_at(pid)
        pid = 0 if seen is None else seen.parent
    return frozenset(line)


def look_at(pid: int) -> Seen | None:
    """None if there is no such process, or only its zombie."""
    content = _read(f"/proc/{pid}/stat")
    if content is None:
        return None
    stat = content.rpartition(b")")[2].split()
    is_headless = stat[0] in (b"Z", b"X")
    if is_headless and int(stat[17]) <= 1:
        return None
    # The first thread of a process may end before the others, and is a zombie until they have.
    tasks = _tasks(pid) if is_headless else [str(pid)]
    run_id = next(filter(None, (_run_id_of(task) for task in tasks)), None)
    identity = replace(_this_process(), pid=pid, start_time=int(stat[19]))
    return Seen(identity, int(stat[1]), int(stat[2]), int(stat[3]), run_id)


def _follows(seen: Seen, found: Mapping[int, Seen]) -> bool:
    """Whether it names no run and is the child of one in ``found``, or in its session."""
    if seen.run_id is not None:
        return False
    relatives = (found.get(seen.parent), found.get(seen.session))
    return any(each is not None and each.is_older(seen) for each in relatives)


def _pids() -> list[int]:
    """The newest first: among them are those that will not be there for long."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def _tasks(pid: int) -> list[str]:
    try:
        return [f"{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _run_id_of(task: str) -> str | None:
    environ = _read(f"/proc/{task}/environ")
    if environ is None or _PREFIX not in environ:
        return None
    for entry in environ.split(b"\0"):
        if entry.startswith(_PREFIX):
            return os.fsdecode(entry[len(_PREFIX) :]) or None
    return None


def _read(path: str) -> bytes | None:
    """None if it cannot be read: the process is gone, or another user's. It has to be quick."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts)


_own: list[ProcessIdentity] = []


def _this_process() -> ProcessIdentity:
    """Asked for once: only its host and boot are of interest, and they stay as they are."""
    if not _own:
        _own.append(ProcessIdentity.own())
    return _own[0]
