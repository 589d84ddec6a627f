"""A thread that takes messages out of a queue in a store, and can be stopped.

A client that waits on a store can neither be interrupted nor asked for anything else, and torch
complains on stderr when its wait times out. So each queue that somebody listens to has a connection
and a thread of its own that wait without end, and stopping it means sending it a message.
"""

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from torch.distributed import DistStoreError

from dlrover_cli.rendezvous.job_board import JobBoard, Message

_STOP_SECONDS = 2.0
_BYE_SECONDS = 1.0


class Mailbox:
    """Hands every message of a queue to ``deliver``, in a thread of its own."""

    def __init__(
        self,
        board: JobBoard,
        queue: str,
        deliver: Callable[[Message, JobBoard], None],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        """``deliver`` may use the board that it is given; ``on_lost`` is called at most once."""
        self._board = board
        self._queue = queue
        self._deliver = deliver
        self._on_lost = on_lost
        self._stop_message: Message = {"kind": "stop listening", "whom": uuid.uuid4().hex}
        self._own_board: JobBoard | None = None
        self._hung_up = False
        self._thread = threading.Thread(
            target=self._listen, name=f"mailbox-{queue.partition('/')[0]}", daemon=True
        )
        self._thread.start()

    def hang_up(self) -> None:
        """Tell the listener to end, without waiting for it. Does nothing the second time."""
        if self._hung_up:
            return
        self._hung_up = True
        self._board.push(self._queue, self._stop_message)

    def stop(self) -> None:
        """Listen no more. One whose store does not answer is left behind."""
        with suppress(RuntimeError, OSError):  # then the listener has noticed, too
            self.hang_up()
            self._thread.join(_STOP_SECONDS)

    def _listen(self) -> None:
        try:
            # Here, since a store that is just gone keeps whoever connects to it for minutes.
            board = self._own_board = self._board.clone()
            while True:
                try:
                    message = board.next_message(self._queue)
                except DistStoreError:  # nobody has written for weeks
                    continue
                if message == self._stop_message:
                    return
                if message.get("kind") == self._stop_message["kind"]:  # for another listener
                    board.push(self._queue, message)
                else:
                    self._deliver(message, board)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the store is gone
            self._on_lost(error)


def await_byes(board: JobBoard, number: int, count: int) -> None:
    """Say that this node needs the store no more, and wait a moment for so many to say it too.

    The last round of each, ``number``, tells those who have been in this one from who left before.

    Whoever listens to a store when it ends fills stderr with complaints: the node that hosts it
    goes last.
    """
    if count == 0:
        board.push(f"{number}/bye", {})
        return
    byes = threading.Semaphore(0)
    mailbox = Mailbox(board, f"{number}/bye", lambda *_: byes.release(), lambda _: None)
    deadline = time.monotonic() + _BYE_SECONDS
    while count and byes.acquire(timeout=max(0.0, deadline - time.monotonic())):
        count -= 1
    mailbox.stop()
