"""Runs all checks at once, each with the same deadline, and hands on findings in their order."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from difflib import get_close_matches

from dlrover_cli.doctor.clock import check_clock
from dlrover_cli.doctor.endpoint import check_endpoint
from dlrover_cli.doctor.engines import check_kubernetes, check_ray, check_slurm
from dlrover_cli.doctor.extensions import check_extensions
from dlrover_cli.doctor.finding import Finding, problem, warning
from dlrover_cli.doctor.leftovers import check_leftovers
from dlrover_cli.doctor.limits import check_limits
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.doctor.memory import check_memory, check_shared_memory
from dlrover_cli.doctor.names import check_hostname, check_interfaces
from dlrover_cli.doctor.processors import check_processors
from dlrover_cli.doctor.software import check_launcher, check_python
from dlrover_cli.doctor.storage import check_state, check_temporary
from dlrover_cli.doctor.torch_probe import check_torch
from dlrover_cli.errors import DlroverError, UsageError
from dlrover_cli.words import one_line

Check = Callable[[Machine], Iterable[Finding]]
Examined = tuple[str, list[Finding]]
"""The name of a check, and what it found."""

CHECKS: Mapping[str, Check] = {
    "python": check_python,
    "launcher": check_launcher,
    "hostname": check_hostname,
    "interfaces": check_interfaces,
    "endpoint": check_endpoint,
    "shm": check_shared_memory,
    "memory": check_memory,
    "cpu": check_processors,
    "limits": check_limits,
    "state": check_state,
    "tmp": check_temporary,
    "leftovers": check_leftovers,
    "clock": check_clock,
    # Those that take seconds are last, so that the others are read meanwhile.
    "extensions": check_extensions,
    "slurm": check_slurm,
    "kubernetes": check_kubernetes,
    "ray": check_ray,
    "torch": check_torch,
}
_GRACE = 0.5
"""Beyond the deadline, for a check that stops by itself when its time is up."""


def chosen_checks(names: Iterable[str]) -> Mapping[str, Check]:
    """Those of these names; all if there is none. Raises UsageError."""
    names = list(names) or list(CHECKS)
    for name in names:
        if name not in CHECKS:
            near = get_close_matches(name, CHECKS, n=1)
            raise UsageError(
                f"there is no check {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(CHECKS)}",
            )
    return {name: check for name, check in CHECKS.items() if name in names}


def examine(
    machine: Machine,
    checks: Mapping[str, Check],
    waiting: Callable[[str], None] = lambda name: None,
) -> Iterator[Examined]:
    """What each check found, in their order; `waiting` is told for which one we wait."""
    deadline = time.monotonic() + machine.seconds + _GRACE
    started = {name: _start(name, check, machine) for name, check in checks.items()}
    for name, running in started.items():
        if not running.done():
            waiting(name)
        try:
            found = running.result(max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            found = [_too_slow(name, machine.seconds)]
        yield name, found


def _start(name: str, check: Check, machine: Machine) -> "Future[list[Finding]]":
    """In a thread, which ends by itself: all that a check waits for has a deadline.

    Except for the kernel's answer about a file system that is gone, which nothing can end. So the
    thread is a daemon, and is not waited for beyond the deadline.
    """
    done: Future[list[Finding]] = Future()

    def look() -> None:
        try:
            done.set_result(list(check(machine)))
        except Exception as error:  # noqa: BLE001 - one check's mistake must not cost the others
            done.set_result([_failed(name, error)])

    threading.Thread(target=look, name=f"doctor-{name}", daemon=True).start()
    return done


def _too_slow(name: str, seconds: float) -> Finding:
    return problem(
        name,
        f"no answer within {seconds:g} s",
        why="what takes so long here, a file system or a service, holds up a job as well",
        fix=f"look at it alone with more time: dlrover-job doctor {name} --timeout {seconds * 3:g}",
    )


def _failed(name: str, error: Exception) -> Finding:
    what = error.message if isinstance(error, DlroverError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, DlroverError) else None
    return warning(
        name,
        f"could not be looked at: {one_line(what)}",
        why="nothing is known about it",
        fix=hint or "look at it by hand",
    )
