"""The last row of a terminal, kept free of what others write: a scroll region ends above it.

Workers write to the same terminal and know nothing of us. So whatever we send goes out in one
write, begins by saving the cursor with its colours and ends by restoring them.
"""

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
import time

from dlrover_cli.launch.status.row_guard import RowGuard

_SAVE, _RESTORE = "\0337", "\0338"
_INDEX, _UP, _DOWN = "\033D", "\033[A", "\033[B"
_DIM, _PLAIN = "\033[2m", "\033[0m"
_CLEAR_ROW = "\033[2K"
_WHOLE_SCREEN = "\033[r"
# Rows are clamped to the last one, so this needs no size: it may be another one when we are killed.
RELEASE = f"{_SAVE}{_WHOLE_SCREEN}\033[999;1H{_CLEAR_ROW}{_RESTORE}"
_PATIENCE_SECONDS = 0.2
_LIFT_SECONDS = 5.0
_LEAST_ROWS, _LEAST_COLUMNS = 10, 30


class LastRow:
    """Reserves, fills and gives back the row. Every method may be called from a signal handler."""

    def __init__(self, fd: int) -> None:
        """``fd`` is a terminal. Raises OSError if somebody else has its last row."""
        self._fd = _reopened(fd)
        try:
            # Two launchers in one terminal: the second one goes without.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise
        self._lock = threading.RLock()
        self._unsent = b""
        self._lift_at = time.monotonic() + _LIFT_SECONDS
        self._size: tuple[int, int] | None = None
        """Of the terminal when the row was reserved; None while it is not."""
        self._is_closed = False
        self._guard = RowGuard(fd, RELEASE)

    @property
    def is_reserved(self) -> bool:
        return self._size is not None

    def width(self) -> int | None:
        """How many columns a text may have; None while there is no place for one.

        There is none on a small screen, and while our process is in the background.
        """
        with self._lock:
            size = None if self._is_closed else self._usable_size()
            return None if size is None else size[1] - 1

    def show(self, text: str) -> None:
        """Put the text there; the row is reserved first if it has to be."""
        with self._lock:
            size = None if self._is_closed else self._usable_size()
            if size is None:
                self.release()
                return
            if not self._flush():  # the terminal is stopped; this text is old when it goes on
                return
            rows, _ = size
            region = f"{_SAVE}\033[1;{rows - 1}r"
            if size != self._size:
                self._guard.begin()
                # If the cursor is in the last row, its line has to move up before that is ours.
                self._send(f"{_SAVE}{_WHOLE_SCREEN}{_RESTORE}{_INDEX}{_UP}{region}{_RESTORE}")
                self._size = size
            # The region anew each time: a worker may have reset the terminal.
            place = f"{region}\033[{rows};1H{_PLAIN}{_DIM}"
            self._send(f"{place}{text}{_PLAIN}\033[K{_RESTORE}{self._lift(rows)}")

    def release(self) -> None:
        """Give the row back. A second call does nothing."""
        with self._lock:
            if self._size is not None:
                self._size = None
                self._send(RELEASE)
                self._guard.end()

    def close(self) -> None:
        """Give the row back for good."""
        with self._lock:
            if not self._is_closed:
                self.release()
                self._is_closed = True
                os.close(self._fd)

    def _lift(self, rows: int) -> str:
        """Now and then: get the cursor out of our row.

        It is there if a worker has reset the screen, and what is written there would never scroll.
        A step up that the margin of one region stops, and a step down that the margin of the other
        stops, leave it where it is in all other rows but the first.
        """
        if time.monotonic() < self._lift_at:
            return ""
        self._lift_at = time.monotonic() + _LIFT_SECONDS
        up = f"{_SAVE}\033[{rows - 1};{rows}r{_RESTORE}{_UP}"
        return f"{up}{_SAVE}\033[1;{rows - 1}r{_RESTORE}{_DOWN}"

    def _usable_size(self) -> tuple[int, int] | None:
        try:
            if os.tcgetpgrp(self._fd) != os.getpgrp():
                return None
            packed = fcntl.ioctl(self._fd, termios.TIOCGWINSZ, bytes(8))
        except OSError:  # it is gone, or not the terminal of our session
            return None
        rows, columns, _, _ = struct.unpack("HHHH", packed)
        return (rows, columns) if rows >= _LEAST_ROWS and columns >= _LEAST_COLUMNS else None

    def _send(self, text: str) -> None:
        """In one write, if the terminal takes it; the rest comes before whatever is sent next."""
        self._unsent += text.encode(errors="replace")
        self._flush()

    def _flush(self) -> bool:
        """Whether all is sent. A terminal that is gone takes everything."""
        while self._unsent and self._is_writable():
            try:
                self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
            except BlockingIOError:
                return False
            except OSError:
                self._unsent = b""
        return not self._unsent

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(_PATIENCE_SECONDS * 1000))


def _reopened(fd: int) -> int:
    """The same terminal, opened for us alone: what is set on it concerns nobody else."""
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        return os.open(f"/proc/self/fd/{fd}", flags)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)  # another user's, since `su`
