"""The command line that ps shows for a forked process: its own instead of its parent's."""

import ctypes
import os
import struct
from collections.abc import Sequence

_PR_SET_NAME = 15
_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
# struct prctl_mm_map: eleven addresses, no auxiliary vector, no other executable
_MAP = struct.Struct("=11QQIi")
_LONGEST_NAME = 15

_libc = ctypes.CDLL(None)
_libc.sbrk.restype = ctypes.c_void_p
_kept: list[object] = []  # the kernel reads it for as long as the process lives


def write(argv: Sequence[str]) -> None:
    """Make ``argv`` the command line of this process, as /proc shows it.

    A nicety: where the kernel does not allow it, it is laid over the old one and may be cut short;
    where it does not even say where that lies, nothing happens.
    """
    name = os.fsencode(os.path.basename(argv[0]))[:_LONGEST_NAME]
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
    text = b"".join(os.fsencode(part) + b"\0" for part in argv)
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            # Counted from 3, as in proc(5): the first two are the number and the name.
            fields = ["", "", "", *stat.read().rpartition(")")[2].split()]
        addresses = [int(fields[number]) for number in (26, 27, 45, 46, 47, 28, 48, 49, 50, 51)]
    except (OSError, IndexError, ValueError):
        return
    start, end = addresses[6:8]
    if not _move(addresses, text) and 0 < start < end:
        ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


def _move(addresses: Sequence[int], text: bytes) -> bool:
    code_start, code_end, data_start, data_end, heap, stack, _, _, *environment = addresses
    buffer = ctypes.create_string_buffer(text, len(text))
    start = ctypes.addressof(buffer)
    map_ = _MAP.pack(
        *(code_start, code_end, data_start, data_end, heap, _libc.sbrk(0), stack),
        *(start, start + len(text), *environment),
        *(0, 0, -1),
    )
    _kept.append(buffer)
    return not _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.c_char_p(map_), len(map_), 0)
