"""A console that several workers share: no line of one lands inside a line of another.

Whoever has begun a line may end it. Others wait for that, but not for long: then the line is ended
for its owner. A partial line goes out at once while nobody else has something to say, so that a
prompt or a row of dots is seen when it is written. A line with a carriage return in it is a
progress bar: it has no end worth waiting for, and another bar may replace it.
"""

import contextlib
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dlrover_cli.workers.nursery import write_all

PATIENCE = 0.1
"""Seconds that a line waits for another one to end."""

_MOST_HELD = 1 << 16
_LOOK_EVERY = 0.05
# A longer line goes out in pieces, so that a worker that never ends one cannot fill our memory.
_LONGEST_LINE = 1 << 20
_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
# A terminal that was stopped must not keep the launcher from going on.
_BUSY_SECONDS = 1.0


class Console:
    """One terminal, pipe or file that is written to from here. Get it from `console_of`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: dict[Speaker, None] = {}
        self._open: Speaker | None = None
        """Who has begun the line that the cursor is in."""
        self._open_is_bar = False
        self._is_silenced: Callable[[], bool] | None = None

    def silence_while(self, is_silenced: Callable[[], bool] | None) -> None:
        """Hold everything back while this says so: somebody talks to a person there."""
        self._is_silenced = is_silenced

    @property
    def is_silenced(self) -> bool:
        """Whether somebody talks to a person there right now."""
        return self._is_silenced is not None and self._is_silenced()

    def next_look(self) -> float | None:
        """When `settle` has something to do at the latest (``time.monotonic``); None if never."""
        with self._lock:
            if not self._waiting:
                return None
            if self.is_silenced:
                return time.monotonic() + _LOOK_EVERY
            return min(speaker.since for speaker in self._waiting) + PATIENCE

    def settle(self) -> None:
        """Let everybody speak who may by now."""
        with self._lock:
            if self.is_silenced:
                return
            now = time.monotonic()
            # The end of one line may be what another one has waited for.
            while any(self._let_speak(speaker, now) for speaker in tuple(self._waiting)):
                pass

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """For lines of our own: nobody writes meanwhile, and an open line is ended first."""
        is_ours = self._lock.acquire(timeout=_BUSY_SECONDS)
        try:
            if is_ours and self._open is not None:
                _write(self._open.fd, b"\n")
                self._open = None
            yield
        finally:
            if is_ours:
                self._lock.release()

    def hear(self, speaker: "Speaker", data: bytes) -> None:
        """Take what a speaker says, and show it as soon as it may be shown."""
        with self._lock:
            if speaker not in self._waiting:
                speaker.since = time.monotonic()
                self._waiting[speaker] = None
            speaker.pending += data
            self.settle()

    def dismiss(self, speaker: "Speaker") -> None:
        """Nothing more will come from it: it need not wait for anybody but a person."""
        with self._lock:
            speaker.is_gone = True
            self.settle()

    def _let_speak(self, speaker: "Speaker", now: float) -> bool:
        is_impatient = speaker.is_gone or now - speaker.since >= PATIENCE
        piece = bytes(speaker.pending)
        if len(self._waiting) > 1 and not is_impatient:
            piece = piece[: piece.rfind(b"\n") + 1]
        if not piece or not (is_impatient or self._may_begin(speaker)):
            return False
        self._show(speaker, piece)
        return True

    def _may_begin(self, speaker: "Speaker") -> bool:
        owner = self._open
        return owner is None or owner is speaker or owner.is_gone or self._open_is_bar

    def _show(self, speaker: "Speaker", piece: bytes) -> None:
        """Write the beginning of what a speaker has to say."""
        continues = self._open is speaker
        replaces = self._open_is_bar and piece.startswith(b"\r")
        _write(speaker.fd, piece if self._open is None or continues or replaces else b"\n" + piece)
        del speaker.pending[: len(piece)]
        self._waiting.pop(speaker)
        if speaker.pending:  # the beginning of a line, which has to wait like those of others
            speaker.since = time.monotonic()
            self._waiting[speaker] = None
        _, newline, begun = piece.rpartition(b"\n")
        self._open = speaker if begun else None
        self._open_is_bar = b"\r" in begun or (not newline and continues and self._open_is_bar)


@dataclass(slots=True, eq=False)
class Speaker:
    """One stream on a console; ``fd`` is where it is written to."""

    console: Console
    fd: int
    pending: bytearray = field(default_factory=bytearray)
    since: float = 0.0
    """When the first of what is pending came."""
    is_gone: bool = False

    @property
    def has_too_much(self) -> bool:
        """Whether the stream should not be read for now."""
        return len(self.pending) > _MOST_HELD

    def say(self, data: bytes) -> None:
        if data:
            self.console.hear(self, data)

    def finish(self) -> None:
        self.console.dismiss(self)


class Prefixed:
    """Puts a prefix before each line of a stream; ``feed`` returns what can be shown by now.

    On a terminal that is everything, and what follows a carriage return has the prefix too.
    Elsewhere whole lines are shown, each with one prefix.
    """

    def __init__(self, prefix: bytes, *, on_terminal: bool) -> None:
        self._prefix = prefix
        self._on_terminal = on_terminal
        self._rest = bytearray()
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        if self._on_terminal:
            return self._at_once(data)
        whole, newline, rest = data.rpartition(b"\n")
        shown = b""
        if newline:
            shown = self._with_prefixes(bytes(self._rest) + whole + newline)
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > _LONGEST_LINE:
            shown += self.finish()
        return shown

    def finish(self) -> bytes:
        """What has no end, and gets none."""
        rest = bytes(self._rest)
        self._rest.clear()
        return self._with_prefixes(rest)

    def _at_once(self, data: bytes) -> bytes:
        data = bytes(self._rest) + data
        self._rest.clear()
        if data.endswith(b"\r"):  # there is no telling yet what it is a part of
            data = data[:-1]
            self._rest += b"\r"
        return _CARRIAGE_RETURN.sub(b"\r" + self._prefix, self._with_prefixes(data))

    def _with_prefixes(self, data: bytes) -> bytes:
        if not data:
            return b""
        body = data[:-1].replace(b"\n", b"\n" + self._prefix) + data[-1:]
        shown = body if self._has_begun else self._prefix + body
        self._has_begun = not data.endswith(b"\n")
        return shown


_consoles: weakref.WeakValueDictionary[tuple[int, int, int], Console] = (
    weakref.WeakValueDictionary()
)
_consoles_lock = threading.Lock()


def console_of(fd: int) -> Console:
    """The console behind a descriptor; stdout and stderr on one terminal have the same."""
    try:
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino, status.st_rdev)
    except OSError:  # closed: nothing will be seen of it
        identity = (-1, -1, fd)
    with _consoles_lock:
        return _consoles.setdefault(identity, Console())


def _write(fd: int, data: bytes) -> None:
    # Nobody reads the console any more; the worker would have got SIGPIPE, the files go on.
    with contextlib.suppress(OSError):
        write_all(fd, data)
