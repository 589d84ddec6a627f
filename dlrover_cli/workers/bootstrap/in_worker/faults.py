"""Python stacks from a worker that crashes, or that is asked for them while it hangs.

faulthandler writes both without running Python code, so they come out even when the main thread
sits in C and never returns.
"""

import faulthandler
import os

from .page import move_up

# A real-time signal far from both ends of their range, where runtimes, profilers and debuggers
# take theirs. Its default action ends a process: send it only to one that catches it.
STACK_SIGNAL = 57
FAULT_FILE = "fault.txt"
STACKS_FILE = "stacks.txt"

_descriptors: list[int] = []


def enable(directory: str) -> bool:
    """Dump to ``fault.txt`` on a fatal signal and to ``stacks.txt`` on request.

    On request each thread writes its own stack only: those of threads that go on meanwhile cannot
    be read without the danger of a crash, which does not matter once there is one.
    """
    if not faulthandler.is_enabled():  # the user's -X faulthandler or PYTHONFAULTHANDLER wins
        faulthandler.enable(file=_open(directory, FAULT_FILE), all_threads=True)
    if not hasattr(faulthandler, "register"):
        return False
    faulthandler.register(
        STACK_SIGNAL, file=_open(directory, STACKS_FILE), all_threads=False, chain=False
    )
    return True


def detach() -> None:
    """In a forked child: its dumps are not the worker's, and go where they went without us."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for fd in _descriptors:
            os.dup2(nowhere, fd, inheritable=False)
        os.close(nowhere)
    except OSError:
        pass  # out of descriptors: the child has worse troubles


def _open(directory: str, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    fd = move_up(os.open(os.path.join(directory, name), flags, 0o600))
    _descriptors.append(fd)
    return fd
