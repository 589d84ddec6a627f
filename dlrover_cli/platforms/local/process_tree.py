"""End all processes of a run: SIGTERM, time to end in good order, and SIGKILL until none is left.

A process is signalled through a pidfd, after its start time was compared: one that was given the
pid of a process of the run gets nothing. Nothing is polled; ends of processes wake us.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from dlrover_cli.platforms.local.run_processes import RunProcesses, Seen, own_line
from dlrover_cli.telemetry.process_identity import ProcessIdentity

PATIENCE = 10.0
"""How long to go on killing: what is still there then waits for the kernel, not for us."""

_MOST_WAITED_FOR = 128
"""At a time, so that a run of thousands of processes does not use up the file descriptors."""


def find_processes(
    run_id: str, known: Iterable[ProcessIdentity] = (), *, spare: Collection[int] | None = None
) -> tuple[ProcessIdentity, ...]:
    """The living processes of the run, except this one and its ancestors. No zombies."""
    run = RunProcesses(run_id, frozenset(known), own_line() if spare is None else spare)
    return _identities(run.look())


def stop_tree(
    run_id: str,
    known: Iterable[ProcessIdentity],
    *,
    grace: float,
    leader: ProcessIdentity | None = None,
    spare: Collection[int] | None = None,
    patience: float = PATIENCE,
) -> tuple[ProcessIdentity, ...]:
    """SIGTERM, ``grace`` seconds, SIGKILL: returns those that could not be ended.

    A ``leader`` gets SIGTERM alone and ends the others in its own order; they hear of it only once
    it is gone. ``spare`` are pids never to be signalled: by default this process and its ancestors.
    """
    run = RunProcesses(run_id, frozenset(known), own_line() if spare is None else spare)
    deadline = time.monotonic() + grace
    if leader is not None and grace > 0 and leader.pid not in run.spare:
        _ask_to_end(leader)
        _wait([leader], deadline)
    told: set[ProcessIdentity] = set()
    while time.monotonic() < deadline:
        found = _identities(run.look())
        if not found:
            return ()
        for identity in found:
            if identity not in told:
                _ask_to_end(identity)
        told.update(found)
        _wait(found, deadline)
    return _kill(run, time.monotonic() + patience)


def _kill(run: RunProcesses, deadline: float) -> tuple[ProcessIdentity, ...]:
    """SIGKILL until a look finds nobody, or the deadline is past."""
    while found := _freeze(run, deadline):
        for identity in found:
            _signal(identity, signal.SIGKILL)
        _wait(found, min(deadline, time.monotonic() + 1))
        if time.monotonic() >= deadline:
            return _identities(run.look())
    return ()


def _freeze(run: RunProcesses, deadline: float) -> tuple[ProcessIdentity, ...]:
    """Everybody of the run, none of whom can start another one any more.

    Killed one by one, processes that fork could outrun us. They are stopped, until a look finds
    nobody who was not; those who outrun even that are stopped as a process group, all at once.
    """
    frozen = _Frozen()
    found = run.look(frozen.add)
    looks = 1
    while frozen.has_grown and time.monotonic() < deadline:
        frozen.has_grown = False
        found = run.look(frozen.add)
        looks += 1
        if looks > 2 and frozen.has_grown:
            for group, member in run.groups(found).items():
                _freeze_group(group, member)
    return _identities(found)


@dataclass(slots=True)
class _Frozen:
    """Those that were sent SIGSTOP. From then on they start nobody."""

    members: set[ProcessIdentity] = field(default_factory=set)
    has_grown: bool = False

    def add(self, identity: ProcessIdentity) -> None:
        if identity in self.members:
            return
        _signal(identity, signal.SIGSTOP)
        self.members.add(identity)
        self.has_grown = True


def _freeze_group(group: int, member: Seen) -> None:
    """SIGSTOP a whole group at once: nobody in it can fork past that."""
    with member.identity.opened() as descriptor:
        if descriptor is None:
            return
        try:
            # A member that is alive and frozen keeps its group, and the number of it, in being.
            if os.getpgid(member.identity.pid) == group:
                os.killpg(group, signal.SIGSTOP)
        except (ProcessLookupError, PermissionError):
            return


def _ask_to_end(identity: ProcessIdentity) -> None:
    """SIGTERM; one that was stopped has to go on to take notice of it."""
    _signal(identity, signal.SIGTERM)
    _signal(identity, signal.SIGCONT)


def _signal(identity: ProcessIdentity, number: int) -> None:
    """Send it, unless the process is gone or is not ours to signal: then a later look tells."""
    try:
        identity.signal(number)
    except PermissionError:
        return


def _wait(identities: Sequence[ProcessIdentity], deadline: float) -> None:
    """Until all of them have ended (of very many: the first ones), or the deadline."""
    with ExitStack() as stack:
        poll = select.poll()
        left = 0
        for identity in identities[:_MOST_WAITED_FOR]:
            descriptor = stack.enter_context(identity.opened())
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
                left += 1
        while left and (seconds := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(seconds * 1000):
                poll.unregister(descriptor)
                left -= 1


def _identities(found: Iterable[Seen]) -> tuple[ProcessIdentity, ...]:
    return tuple(each.identity for each in found)
