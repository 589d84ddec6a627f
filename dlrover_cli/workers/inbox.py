"""One place where everything that may wake the agent arrives.

A worker's end, a peer's decision, a finished rendezvous and a signal all become observations. The
agent's main thread takes them one at a time from :meth:`Inbox.next`; nothing else blocks it.
"""

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol


class HasFileno(Protocol):
    """Anything that a selector can watch."""

    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """The launcher itself was signalled."""

    signum: signal.Signals


class Inbox:
    """Observations of any type, from any thread, in order of arrival.

    ``post`` may be called from any thread and from signal handlers. ``watch``, ``unwatch``,
    ``next`` and ``close`` belong to the thread that runs the agent.
    """

    def __init__(self) -> None:
        self._queue: deque[object] = deque()
        # Re-entrant, since a signal handler may post while the same thread does.
        self._closing = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)

    def post(self, observation: object) -> None:
        """Queue an observation and wake the agent."""
        self._queue.append(observation)
        with self._closing:
            if self._wake_write < 0:
                return  # the agent is gone, and nobody is left to tell
            # A full pipe means that the agent is awake already.
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"\0")

    def watch(self, source: HasFileno, read: Callable[[], Iterable[object]]) -> None:
        """Call ``read`` in the agent's thread when ``source`` has data; queue what it returns."""
        self._selector.register(source, selectors.EVENT_READ, read)

    def unwatch(self, source: HasFileno) -> None:
        """Stop watching ``source``; must come before it is closed."""
        self._selector.unregister(source)

    def next(self, deadline: float | None = None) -> object | None:
        """The next observation, or None once ``deadline`` (``time.monotonic``) has passed."""
        while True:
            if self._queue:
                return self._queue.popleft()
            timeout = None if deadline is None else deadline - time.monotonic()
            if timeout is not None and timeout <= 0:
                return None
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    self._drain_wakeups()
                else:
                    self._queue.extend(key.data())

    def close(self) -> None:
        """Release the descriptors. Later posts are dropped; a second call does nothing."""
        with self._closing:
            if self._wake_write < 0:
                return
            wake_write, self._wake_write = self._wake_write, -1
            self._selector.close()
            os.close(self._wake_read)
            os.close(wake_write)

    @contextmanager
    def receiving_signals(self, signals: Iterable[signal.Signals]) -> Iterator[None]:
        """Turn these signals into observations while inside; restore the old handlers after.

        A SIGHUP that was ignored when we started (``nohup``) stays ignored. Outside the main thread
        handlers cannot be installed and this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old: dict[signal.Signals, Any] = {}
        for signum in signals:
            before = signal.getsignal(signum)
            if signum == signal.SIGHUP and before == signal.SIG_IGN:
                continue
            signal.signal(signum, self._on_signal)
            old[signum] = before
        try:
            yield
        finally:
            for signum, handler in old.items():
                # None: installed by something else than Python, which we cannot put back.
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.post(SignalReceived(signal.Signals(signum)))

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return
