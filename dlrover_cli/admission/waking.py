"""How a runner that waits is woken: through a pipe of its own, or by the end of another runner."""

import os
import select
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from enum import Enum, auto
from pathlib import Path

from dlrover_cli.telemetry.process_identity import ProcessIdentity


class Woken(Enum):
    """What has ended the waiting."""

    CALLED = auto()
    """Somebody has held a session, and it concerns this run."""
    OTHER_ENDED = auto()
    TIME_OUT = auto()


class Bell:
    """The pipe of one run. Without one, on a file system that has none, only time wakes it."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mkfifo(path, 0o600)
            self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(
        self,
        others: Iterable[ProcessIdentity],
        seconds: float,
        interrupting: Callable[[], AbstractContextManager[None]],
    ) -> Woken:
        """Until the bell rings, one of the others has ended, or the time is over."""
        with ExitStack() as stack:
            poll = select.poll()
            if self._descriptor is not None:
                poll.register(self._descriptor, select.POLLIN)
            for other in others:
                descriptor = stack.enter_context(other.opened())
                if descriptor is None:
                    return Woken.OTHER_ENDED
                poll.register(descriptor, select.POLLIN)
            with interrupting():
                ready = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
        if not ready:
            return Woken.TIME_OUT
        if self._descriptor not in ready:
            return Woken.OTHER_ENDED
        with suppress(BlockingIOError):
            os.read(self._descriptor, 4096)
        return Woken.CALLED

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def ring(path: Path) -> None:
    """Wake the runner that waits there, if there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # nobody waits
    try:
        with suppress(BlockingIOError):  # it is full of calls already
            os.write(descriptor, b".")
    finally:
        os.close(descriptor)
