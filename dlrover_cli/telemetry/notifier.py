"""Notifications: events go to the receivers, each with a thread and a queue of its own.

What a receiver does not take is sent again, after a growing pause, for as long as the run goes on
and a little longer. Neither the job nor its recovery waits for it. What is left at the end is kept
in the node's directory of the run, and goes first if the run goes on in another process.
"""

import json
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dlrover_cli.services.faults import BadStatus, ServiceFailed
from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.notices import Notice, headers_of, is_wanted, notice_of
from dlrover_cli.words import counted

QUEUE_LENGTH = 1000
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE_AT_END = 0.1, 30.0, 0.5
UNDELIVERED = "undelivered.jsonl"
_END_SECONDS, _UNREACHED_SECONDS, _GOING_ON_SECONDS = 10.0, 2.0, 0.25
_TRY_AGAIN = frozenset({408, 409, 425, 429})


class Client(Protocol):
    """Sends one body to one receiver."""

    @property
    def was_reached(self) -> bool:
        """Whether there was ever a connection."""

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Raises ServiceFailed within a deadline."""

    def close(self) -> None:
        """Close connections that are kept."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where notices go, and how that is called where people see it."""

    shown: str
    client: Client
    secret: bytes | None = field(default=None, repr=False)


class Notifier:
    """Tells all receivers of one agent's events."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        kinds: Collection[str],
        *,
        agent: str,
        host: str,
        directory: Path,
        say: Callable[[str], None],
        tells_of_run: bool = True,
    ) -> None:
        self._kinds, self._agent, self._host = kinds, agent, host
        self._tells_of_run = tells_of_run
        self._say = say
        self._left = directory / UNDELIVERED
        self._lanes = [_Lane(receiver, say) for receiver in receivers]
        self._take_up()

    def put(self, event: Event) -> None:
        """Take one event, and return at once."""
        if is_wanted(event, self._kinds, tells_of_run=self._tells_of_run):
            notice = notice_of(event, self._agent, self._host)
            for lane in self._lanes:
                lane.put(notice)

    def close(self, *, is_over: bool) -> None:
        """Deliver what is queued within a bounded time, and keep the rest.

        A run that goes on in another process is not held up: it sends the rest itself. And who was
        never there at all is not waited for as long as one that has trouble.
        """
        for lane in self._lanes:
            lane.finish()
        with suppress(KeyboardInterrupt):  # somebody is in a hurry: what is left is kept
            if is_over:
                self._wait()
            else:
                self._join(self._lanes, _GOING_ON_SECONDS)
        left = [(number, lane.leave()) for number, lane in enumerate(self._lanes)]
        self._keep(left)
        if not is_over:
            return
        for lane, (_, notices) in zip(self._lanes, left, strict=True):
            if lost := len(notices) + lane.dropped:
                self._say(
                    f"{lane.shown} did not get {counted(lost, 'notification')}"
                    f"{f' ({lane.problem})' if lane.problem else ''}; "
                    f"what was left is in {self._left}"
                )

    def _wait(self) -> None:
        self._join(self._lanes, _UNREACHED_SECONDS)
        slow = [lane for lane in self._lanes if lane.is_alive and lane.was_reached]
        if slow:
            where, seconds = ", ".join(lane.shown for lane in slow), _END_SECONDS
            self._say(f"delivering notifications to {where}, for at most {seconds:g} s in all")
        self._join(slow, _END_SECONDS - _UNREACHED_SECONDS)

    def _join(self, lanes: "Sequence[_Lane]", seconds: float) -> None:
        end = time.monotonic() + seconds
        for lane in lanes:
            lane.join(end)

    def _take_up(self) -> None:
        """What the process before us could not deliver."""
        try:
            lines = self._left.read_text().splitlines()
            self._left.unlink()
        except OSError:
            return
        for line in lines:
            with suppress(ValueError, KeyError, IndexError, TypeError):
                kept = json.loads(line)
                self._lanes[kept["receiver"]].put(kept["notice"])

    def _keep(self, left: Iterable[tuple[int, Sequence[Notice]]]) -> None:
        lines = [
            json.dumps({"receiver": number, "notice": notice}) + "\n"
            for number, notices in left
            for notice in notices
        ]
        if not lines:
            return
        try:
            fd = os.open(self._left, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "w", encoding="ascii") as file:
                file.writelines(lines)
        except OSError as error:
            self._say(f"cannot keep what was not delivered in {self._left}: {error.strerror}")


class _Lane:
    """One receiver: its queue and its thread."""

    def __init__(self, receiver: Receiver, say: Callable[[str], None]) -> None:
        self.shown = receiver.shown
        self.problem = ""
        self.dropped = 0
        self._receiver = receiver
        self._say = say
        self._queue: deque[Notice] = deque()
        self._refused: list[Notice] = []
        self._changed = threading.Condition()
        self._closing = False
        self._gone = False
        self._thread = threading.Thread(
            # A daemon: a receiver that answers slowly must not keep the launcher alive.
            target=self._deliver,
            name="notify",
            daemon=True,
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def was_reached(self) -> bool:
        return self._receiver.client.was_reached

    def put(self, notice: Notice) -> None:
        with self._changed:
            if self._closing:
                return
            if len(self._queue) >= QUEUE_LENGTH:
                del self._queue[1]  # the first may be on its way
                self.dropped += 1
            self._queue.append(notice)
            self._changed.notify()

    def finish(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self, end: float) -> None:
        self._thread.join(max(0.0, end - time.monotonic()))

    def leave(self) -> list[Notice]:
        """What was not delivered; nothing is sent any more."""
        with self._changed:
            self._gone = True
            left = [*self._refused, *self._queue]
            self._queue.clear()
            self._changed.notify()
        return left

    def _deliver(self) -> None:
        pause = FIRST_PAUSE
        while (notice := self._next()) is not None:
            try:
                self._send(notice)
            except ServiceFailed as error:
                is_final = isinstance(error, BadStatus) and not _may_pass(error.status)
                self._complain(error, is_final=is_final)
                if not is_final:
                    self._rest(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                self._refused.append(notice)
            pause = FIRST_PAUSE
            with self._changed:
                if self._queue and self._queue[0] is notice:
                    self._queue.popleft()
        self._receiver.client.close()

    def _next(self) -> Notice | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            return self._queue[0] if self._queue and not self._gone else None

    def _send(self, notice: Notice) -> None:
        body = json.dumps(notice).encode()
        headers = headers_of(notice, body, time.time(), self._receiver.secret)
        self._receiver.client.post("", body, headers)

    def _rest(self, pause: float) -> None:
        """With jitter, so that the agents of a job do not come all at once."""
        seconds = pause * random.uniform(0.5, 1.0)
        end = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)
            if self._closing:
                left = min(end - time.monotonic(), LONGEST_PAUSE_AT_END * random.uniform(0.5, 1.0))
                self._changed.wait_for(lambda: self._gone, max(0.0, left))

    def _complain(self, error: ServiceFailed, *, is_final: bool) -> None:
        is_first, self.problem = not self.problem, error.what
        if is_first:
            follows = "it is not sent again" if is_final else "trying again beside the job"
            self._say(f"notifications: {error.message}; {follows}")


def _may_pass(status: int) -> bool:
    """Whether the same question may get another answer later."""
    return status >= 500 or status in _TRY_AGAIN
