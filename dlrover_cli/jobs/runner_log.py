"""What a runner and its plugin print, in ``runner.log``: a full disk costs the lines alone."""

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


def print_to_log() -> None:
    """Let stdout and stderr be one stream to the log, which stderr is already, and never fail."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = io.BufferedWriter(_Log())
    sys.stdout = sys.stderr = io.TextIOWrapper(
        log, encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


class _Log(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, data: "Buffer", /) -> int:
        text = bytes(data)
        with suppress(OSError):
            os.write(2, text)
        return len(text)
