"""Stores of every kind for tests: one server or file, and as many clients as there are agents."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import FileStore, HashStore, Store, TCPStore

KINDS = ("tcp", "file", "python")
_TIMEOUT = timedelta(seconds=30)


class PythonStore(Store):
    """A store that a user wrote in Python, with only the methods that every store has."""

    def __init__(self, backing: HashStore) -> None:
        super().__init__()
        self._backing = backing

    def set(self, key: str, value: Any) -> None:
        self._backing.set(key, value)

    def get(self, key: str) -> bytes:
        value: bytes = self._backing.get(key)
        return value

    def add(self, key: str, amount: int) -> int:
        return int(self._backing.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        return bool(self._backing.check(keys))

    def wait(self, keys: list[str], timeout: timedelta = _TIMEOUT) -> None:
        self._backing.wait(keys, timeout)


@contextmanager
def shared_store(kind: str, directory: Path, agents: int) -> Iterator[Callable[[], Store]]:
    """Yields a function that makes one more client of the same store."""
    match kind:
        case "tcp":
            server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            yield lambda: TCPStore("127.0.0.1", server.port, is_master=False, timeout=_TIMEOUT)
        case "file":
            yield lambda: FileStore(str(directory / "store"), agents)
        case "python":
            backing = HashStore()
            yield lambda: PythonStore(backing)
