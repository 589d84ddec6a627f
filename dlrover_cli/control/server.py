"""The listening end of a control socket: one thread that no client can hold up.

It reads and writes only what is there; each request is answered in a thread of its own, of which
there are a few at most. Whoever is slow to ask or to read is cut off after a while, and of too many
connections the oldest that have asked nothing yet go first.
"""

import os
import pwd
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from dlrover_cli.control.wire import (
    LONGEST_ANSWER,
    LONGEST_REQUEST,
    Answer,
    By,
    Request,
    document_in,
    line_of,
)
from dlrover_cli.telemetry.events import Recorder

_SECONDS_TO_ASK = 2.0
_SECONDS_TO_READ = 10.0
_MOST_CONNECTIONS = 64
_MOST_AT_ONCE = 8
_CLOSE_SECONDS = 2.0
_LAST_SECONDS = 1.2
_NO_DESCRIPTOR_SECONDS = 0.1
_CREDENTIALS = struct.Struct("3i")

Respond = Callable[[Request, By], Answer]
"""Called in a thread of its own; it has to come back soon."""


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    by: By
    until: float
    """When it is cut off."""
    asked: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None
    is_answering: bool = False


class ControlServer:
    """Opened by whoever can answer; `close` is for the same thread."""

    def __init__(
        self,
        listener: socket.socket,
        respond: Respond,
        record: Recorder,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """``prepare`` is called in our thread before anything is read."""
        self._prepare = prepare
        self._listener = listener
        self._respond = respond
        self._record = record
        self._uid = os.geteuid()
        self._answered: list[tuple[_Connection, bytes]] = []
        self._connections: list[_Connection] = []
        self._stop = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more. Does nothing the second time."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._wake()
        self._thread.join(_CLOSE_SECONDS)
        with self._lock:
            os.close(self._wake_write)
            self._wake_write = -1

    def _run(self) -> None:
        try:
            self._prepare()
            while not self._stop.is_set():
                self._turn(self._patience())
            # Whoever has asked for our end shall hear of it.
            last = time.monotonic() + _LAST_SECONDS
            while any(each.is_answering for each in self._connections):
                if (left := last - time.monotonic()) <= 0:
                    break
                self._turn(left)
        finally:
            for connection in list(self._connections):
                self._drop(connection)
            self._selector.close()
            self._listener.close()
            os.close(self._wake_read)

    def _turn(self, timeout: float | None) -> None:
        for key, events in self._selector.select(timeout):
            self._take(key, events)
        self._hand_out_answers()
        self._cut_off(time.monotonic())

    def _patience(self) -> float | None:
        ends = [each.until for each in self._connections if not each.is_answering]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _take(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.data is None:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        elif key.data in self._connections:
            if events & selectors.EVENT_WRITE:
                self._write(key.data)
            elif events & selectors.EVENT_READ:
                self._read(key.data)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors left: it would be tried again without a pause
            self._stop.wait(_NO_DESCRIPTOR_SECONDS)
            return
        sock.setblocking(False)
        by = peer_of(sock)
        connection = _Connection(sock, by, time.monotonic() + _SECONDS_TO_ASK)
        self._connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        if by.uid not in (self._uid, 0):
            self._record("control_refused", by=asdict(by))
            self._put(connection, Answer(error=f"this run is not that of {by.user}"))
        elif len(self._connections) > _MOST_CONNECTIONS:
            idle = (each for each in self._connections if not each.is_answering)
            self._drop(next(idle, connection))

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        if connection.is_answering or connection.answer is not None:
            return  # one request a connection; the rest is not listened to
        connection.asked += data
        line, end, _ = connection.asked.partition(b"\n")
        if end:
            self._ask(connection, bytes(line))
        elif len(connection.asked) > LONGEST_REQUEST:
            self._put(connection, Answer(error="a request is one line of at most 64 KiB"))

    def _ask(self, connection: _Connection, line: bytes) -> None:
        try:
            request = Request.from_json(document_in(line))
        except ValueError as error:
            self._put(connection, Answer(error=f"this is no request: {error}"))
            return
        if self._stop.is_set():
            self._put(connection, Answer(error="it is ending"))
            return
        if sum(each.is_answering for each in self._connections) >= _MOST_AT_ONCE:
            self._put(connection, Answer(error="too many requests at once; ask again"))
            return
        connection.is_answering = True
        threading.Thread(
            target=self._answer, args=(connection, request), name="control-answer", daemon=True
        ).start()

    def _answer(self, connection: _Connection, request: Request) -> None:
        try:
            answer = self._respond(request, connection.by)
        except Exception as error:  # noqa: BLE001 - whoever asked learns of it; the job goes on
            answer = Answer(error=f"the launcher could not answer: {type(error).__name__}: {error}")
        line = line_of(answer.to_json())
        if len(line) > LONGEST_ANSWER:
            line = line_of(Answer(error="the answer is too long; ask for fewer ranks").to_json())
        with self._lock:
            self._answered.append((connection, line))
        self._wake()

    def _wake(self) -> None:
        with self._lock, suppress(OSError):
            if self._wake_write >= 0:
                os.write(self._wake_write, b"\0")

    def _hand_out_answers(self) -> None:
        with self._lock:
            answered, self._answered = self._answered, []
        for connection, line in answered:
            if connection in self._connections:
                connection.is_answering = False
                self._send(connection, line)

    def _put(self, connection: _Connection, answer: Answer) -> None:
        self._send(connection, line_of(answer.to_json()))

    def _send(self, connection: _Connection, line: bytes) -> None:
        connection.answer = memoryview(line)
        connection.until = time.monotonic() + _SECONDS_TO_READ
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        if connection.answer is None:
            return
        try:
            sent = connection.sock.send(connection.answer)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        connection.answer = connection.answer[sent:]
        if not connection.answer:
            self._drop(connection)
            return
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.modify(connection.sock, both, connection)

    def _cut_off(self, now: float) -> None:
        for connection in list(self._connections):
            if not connection.is_answering and connection.until <= now:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()


def peer_of(sock: socket.socket) -> By:
    """Who is at the other end, as the kernel has it."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return By(uid, pid, user_name(uid), socket.gethostname())


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return f"uid {uid}"
