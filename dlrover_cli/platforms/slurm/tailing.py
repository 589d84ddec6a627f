"""Show what is appended to a file, as if it had been written here."""

import os
from contextlib import suppress
from pathlib import Path

_CHUNK = 1 << 16


class Tail:
    """From a file that may not be there yet to a descriptor that may be closed."""

    def __init__(self, path: Path, to: int) -> None:
        self._path = path
        self._to = to
        self._from: int | None = None

    def pump(self) -> None:
        """Copy what is new. Never raises."""
        with suppress(OSError):
            if self._from is None:
                self._from = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            while data := os.read(self._from, _CHUNK):
                _write_all(self._to, data)

    def close(self) -> None:
        """Copy the rest."""
        self.pump()
        if self._from is not None:
            os.close(self._from)
            self._from = None


def _write_all(descriptor: int, data: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more, which is no reason to end a training
        while data:
            data = data[os.write(descriptor, data) :]
