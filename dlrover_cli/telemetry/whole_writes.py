"""Writing that leaves nothing half done: whole lines are appended, whole files replaced."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def append_line(fd: int, line: bytes) -> None:
    """Append the line, or nothing of it: what fits on a disk that fills up may be half a line."""
    written = os.write(fd, line)
    if written < len(line):
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file for its user alone, which takes the place of ``path`` once all is in it.

    Readers see the old file or the new one, never a part. On an error nothing is left of the new.
    A link stays a link, and a device or a pipe, such as /dev/stdout, is written to as it is.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
