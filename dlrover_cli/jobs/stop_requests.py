"""A request to stop a job: a signal to the run's owner, and a file that says who asks and how.

Another signal asks a run to make room and to run again later; a request to stop goes before it.

The signal is taken at once where that is safe, else afterwards: a plugin that is interrupted while
it submits a job would leave a job that nobody knows of.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MAKE_ROOM = signal.SIGUSR1
_LISTENED_TO = (*SIGNALS, MAKE_ROOM)


class StopRequested(BaseException):
    """Passes through a plugin's own ``except Exception``."""


class RoomRequested(StopRequested):
    """The run is to end for the sake of another one, and to wait for its turn again."""


@contextmanager
def held_back() -> Iterator[None]:
    """A process that is started meanwhile gets no such signal before it listens to them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LISTENED_TO)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequests:
    """Listens to the signals for the rest of the process's life; made in the main thread."""

    def __init__(self) -> None:
        self._arrived: signal.Signals | None = None
        self._has_to_make_room = False
        self._may_interrupt = False
        for number in _LISTENED_TO:
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _LISTENED_TO)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise StopRequested out of the block when a signal arrives, or has arrived before."""
        self._may_interrupt = True
        try:
            self._raise_what_has_arrived()
            yield
        finally:
            self._may_interrupt = False

    @property
    def signal(self) -> signal.Signals | None:
        """What has arrived."""
        return self._arrived

    def has_made_room(self) -> None:
        """What was asked for is done; nobody asks again for the same place."""
        self._has_to_make_room = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == MAKE_ROOM:
            self._has_to_make_room = True
        else:
            self._arrived = self._arrived or signal.Signals(number)
        if self._may_interrupt:
            self._may_interrupt = False
            self._raise_what_has_arrived()

    def _raise_what_has_arrived(self) -> None:
        if self._arrived is not None:
            raise StopRequested
        if self._has_to_make_room:
            raise RoomRequested
