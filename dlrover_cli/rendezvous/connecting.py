"""Connecting to a store at an address where something else may listen."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dlrover_cli.rendezvous.faults import accepts_connections, no_store

_LOOK_AGAIN_SECONDS = 1.0

_T = TypeVar("_T")


def connect(make: Callable[[], _T], host: str, port: int, patience: float) -> _T:
    """What ``make`` returns or raises; RendezvousFailed if whoever listens there is no store.

    torch's client bounds the time to connect, but waits for ever for the first answer: a web server
    on the port would hang the launcher. Its call cannot be interrupted and is left behind.
    """
    attempt = _Attempt(make)
    thread = threading.Thread(target=attempt.run, name="store-connection", daemon=True)
    thread.start()
    thread.join(patience)
    while thread.is_alive():
        if accepts_connections(host, port):
            raise no_store(host, port)
        thread.join(_LOOK_AGAIN_SECONDS)
    if attempt.error is not None:
        raise attempt.error
    return attempt.values[0]


class _Attempt(Generic[_T]):
    """One call, and what came of it."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self.values: list[_T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.values.append(self._make())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error
