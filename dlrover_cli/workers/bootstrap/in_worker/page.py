"""The beat page: a few numbers in shared memory by which a worker shows that it moves.

Every field is one aligned 8-byte number in the machine's byte order, written in one store, so that
a reader never sees half a value and needs no lock. The agent makes the file in full, which is why
a store can never meet a page that is not there.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Cells: TypeAlias = "memoryview[int]"

SIZE = 4096
MAGIC_NUMBER = 0x444C5256_42454154
(
    MAGIC,
    PID,
    PHASE,
    STACK_SIGNAL,
    BEATS,
    STEPS,
    FIRST_STEP_NS,
    STEP_NS,
    HEARTBEATS,
    HEARTBEAT_NS,
    PROMPT,
    PROMPT_NS,
    BREAKPOINTS,
) = range(13)
# The phases of a worker; 0 as long as nothing of ours runs in it.
START_UP = 1
TRAINING = 2
# What a person does in the worker; 0 for nothing. At a prompt, Ctrl-C is for the worker.
AT_PROMPT = 1
WAITING = 2
PHASE_NAMES = ("unknown", "start-up", "training")
# Where scripts do not look: a first open() still gets 3, and one that closes "all" of its low
# descriptors and opens files of its own does not find our text in them.
_HIGH_DESCRIPTOR = 900
_READ_AND_WRITE = 3
_SHARED = 1


class Page:
    """The worker's side of its page."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def claim(self) -> bool:
        """Make this process the owner; False if another one that is alive owns it."""
        owner = self.read(PID)
        if owner not in (0, os.getpid()) and is_alive(owner):
            return False
        self.write(PID, os.getpid())
        if self.read(PHASE) == 0:
            self.write(PHASE, START_UP)
        return True

    def read(self, field: int) -> int:
        return int.from_bytes(os.pread(self._fd, 8, 8 * field), sys.byteorder)

    def write(self, field: int, value: int) -> None:
        """Store one number through the file; for what happens once."""
        os.pwrite(self._fd, value.to_bytes(8, sys.byteorder), 8 * field)

    def cells(self) -> "Cells":
        """The page mapped into this process, for what happens often."""
        # Not worth loading before there is something to count. (The mmap module would keep a
        # copy of the descriptor, under a low number that a script expects for its own files.)
        import ctypes

        map_ = ctypes.CDLL(None, use_errno=True).mmap
        map_.restype = ctypes.c_void_p
        map_.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t]
        address = map_(None, SIZE, _READ_AND_WRITE, _SHARED, self._fd, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        mapped = (ctypes.c_uint64 * (SIZE // 8)).from_address(address)
        return memoryview(mapped).cast("B").cast("Q")

    def locked(self) -> "_Locked":
        """A block that begins when nobody else has the page locked, and keeps it so."""
        return _Locked(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class _Locked:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        import fcntl  # hardly any worker comes here

        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        import fcntl

        fcntl.flock(self._fd, fcntl.LOCK_UN)


def open_page(path: str) -> Page:
    """Open the page that the agent made. Raises OSError, or ValueError for any other file."""
    fd = move_up(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    page = Page(fd)
    if page.read(MAGIC) != MAGIC_NUMBER:
        page.close()
        raise ValueError(f"{path} is not a beat page")
    return page


def move_up(fd: int) -> int:
    """The same file under a high number, where there is room for it."""
    for number in range(_HIGH_DESCRIPTOR, _HIGH_DESCRIPTOR + 50):
        try:
            os.fstat(number)
        except OSError:
            try:
                os.dup2(fd, number, inheritable=False)
            except OSError:
                return fd  # the limit on descriptors is lower than that
            os.close(fd)
            return number
    return fd


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
