"""The command line that ps shows for a forked process: its own instead of its parent's."""

import ctypes
import os
from collections.abc import Sequence

_PR_SET_NAME = 15


def write(argv: Sequence[str]) -> None:
    """Lay ``argv`` over this process's command line, cut to the room that there is.

    A nicety: where the kernel does not say where the command line lies, nothing happens.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, IndexError, ValueError):
        return
    room = end - start
    if start <= 0 or room <= 1:
        return
    text = b"\0".join(os.fsencode(part) for part in argv)[: room - 1]
    ctypes.memmove(start, text.ljust(room, b"\0"), room)
    name = os.fsencode(os.path.basename(argv[0]))[:15]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
