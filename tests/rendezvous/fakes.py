"""Stands in for the process that hosts stores, where only its ports matter."""

from itertools import count


class FakeStoreHost:
    """Gives out ports and opens nothing."""

    def __init__(self) -> None:
        self._next = count(50_000)
        self.ports: set[int] = set()
        self.is_closed = False

    def open(self, port: int = 0, host: str | None = None) -> int:
        port = port or next(self._next)
        self.ports.add(port)
        return port

    def drop(self, port: int) -> None:
        self.ports.discard(port)

    def replace(self, port: int | None) -> int | None:
        if port is not None:
            self.drop(port)
        return self.open()

    def close(self) -> None:
        self.is_closed = True
        self.ports.clear()
