"""Keeping the status line up to date: events and samples come in, a thread of its own draws."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from dlrover_cli.launch.status.row import LastRow
from dlrover_cli.launch.status.showing import SampleSource
from dlrover_cli.launch.status.state import RunStatus, after_event, after_samples
from dlrover_cli.launch.status.text import ASCII, Glyphs, line_of
from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.live import NodeSample
from dlrover_cli.workers.console import console_of

_TICK_SECONDS = 0.5  # for sizes and clocks; what happens is shown sooner
_SHORTEST_SECONDS = 0.25
_DELAY_SECONDS = 0.7  # a run that is over by then has no need of it
_JOIN_SECONDS = 1.0


@dataclass(slots=True)
class _Drawn:
    text: str = ""
    at: float = 0.0


class StatusLine:
    """Draws a run's status in a row. Owns its thread and the row."""

    def __init__(
        self,
        row: LastRow,
        samples: SampleSource | None = None,
        *,
        asks: bool = False,
        delay: float = _DELAY_SECONDS,
    ) -> None:
        """``asks`` tells that a person is asked about every failure, at this terminal."""
        self._row = row
        self._samples = samples
        self._asks = asks
        self._delay = delay
        self._status = RunStatus(since=time.time())
        self._glyphs = _glyphs()
        self._changing = threading.Lock()
        self._changed = threading.Event()
        self._is_paused = False
        self._is_debugged = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-line", daemon=True)

    def start(self) -> None:
        """Begin to draw, unless the run is over in a moment."""
        self._thread.start()

    def note_event(self, event: Event) -> None:
        """Take note of something that happened. Returns at once."""
        with self._changing:
            self._status = after_event(self._status, event)
        if self._asks and event["kind"] == "failure":
            self.pause()
        elif self._asks and event["kind"] == "decision":
            self.resume()
        self._changed.set()

    def note_sample(self, sample: NodeSample) -> None:
        """Take note of how far this node is. Returns at once."""
        with self._changing:
            self._status = after_samples(self._status, [sample])
        self._is_debugged = any(rank.at_prompt for rank in sample.ranks)
        self._changed.set()

    def pause(self) -> None:
        """Give the row back, for whoever needs the whole terminal; `resume` takes it again."""
        self._is_paused = True
        self._row.release()

    def resume(self) -> None:
        """Show the line again after `pause`."""
        self._is_paused = False
        self._changed.set()

    def close(self) -> None:
        """Stop drawing; the terminal is as before when this returns."""
        self._is_closing.set()
        self._changed.set()
        self._row.close()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        if self._is_closing.wait(self._delay):
            return
        drawn = _Drawn()
        while not self._is_closing.is_set():
            self._changed.clear()
            # Whatever goes wrong with a line of text, the run is not to know of it.
            with suppress(Exception):
                self._look_at_samples()
                self._draw(drawn)
            self._changed.wait(_TICK_SECONDS)
            self._is_closing.wait(_SHORTEST_SECONDS)

    def _look_at_samples(self) -> None:
        if self._samples is None:
            return
        samples = self._samples()
        with self._changing:
            self._status = after_samples(self._status, samples)

    def _draw(self, drawn: _Drawn) -> None:
        # A debugger's prompt has the terminal to itself.
        is_free = not (self._is_paused or self._is_debugged or console_of(2).is_silenced)
        width = self._row.width() if is_free else None
        if width is None:
            self._row.release()
            drawn.text = ""
            return
        text = line_of(self._status, time.time(), width, self._glyphs)
        now = time.monotonic()
        # Now and then anyway: a worker may have cleared the screen.
        if text == drawn.text and now - drawn.at < 1.0:
            return
        self._row.show(text)
        if self._is_paused:  # since we looked
            self._row.release()
        drawn.text, drawn.at = text, now


def _glyphs() -> Glyphs:
    try:
        "·…".encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return Glyphs()


@contextmanager
def stopping_in_good_order(line: StatusLine) -> Iterator[None]:
    """Ctrl-Z gives the row back to the shell; the line returns when the launcher goes on.

    Only where the default would have stopped us: a signal that is ignored or handled stays so.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
        yield
        return
    own_pid = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == own_pid:  # and not in a worker that was forked from here
            line.pause()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, stop)
        if os.getpid() == own_pid:
            line.resume()

    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
