"""Making name lookups fail at once, for a process in which one that waits would hold up everybody.

The thread that serves a TCPStore asks for the name of every client that connects, and answers
nobody meanwhile. It can do without the name, but a name server that does not answer costs it five
seconds. glibc asks over datagram sockets, and caches and local resolvers over Unix
sockets: a process that cannot open either gets its "no" from the kernel.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_ALL_THREADS = 1
_SECCOMP_THIS_THREAD = 0

# What the kernel tells a filter about a system call: its number, the architecture, its arguments.
_NUMBER, _ARCHITECTURE, _FAMILY, _TYPE = 0, 4, 16, 24
_TYPE_BITS = 0xF  # the rest of socket()'s second argument are flags

_LOAD, _AND, _RETURN, _JUMP_IF_EQUAL = 0x20, 0x54, 0x06, 0x15
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers that differ between architectures."""

    audit: int
    socket: int
    seccomp: int


_MACHINES = {
    "x86_64": _Machine(audit=0xC000003E, socket=41, seccomp=317),
    "aarch64": _Machine(audit=0xC00000B7, socket=198, seccomp=277),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_lookups() -> bool:
    """Let no thread of this process open datagram or Unix sockets again; it cannot be undone.

    False where the kernel or the architecture has no such filter. A lookup then still waits for a
    second at most, as does one over TCP, for which a resolver can be configured.
    """
    os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
    return _install(_SECCOMP_ALL_THREADS)


def spare_torch_its_lookups(connect: Callable[[], object]) -> None:
    """Let torch find out, in a moment, that this process cannot look up names of addresses.

    A client asks for a name whenever it connects, too, until it fails to get one; then it never
    asks again, nor does a process that is forked from this one. ``connect`` makes one connection,
    in a thread that is forbidden to look anything up: give it an address and not a name.
    """
    thread = threading.Thread(target=_connect_without_lookups, args=(connect,), name="no-lookups")
    thread.start()
    thread.join()


def _connect_without_lookups(connect: Callable[[], object]) -> None:
    # Whoever connects in earnest will have the same trouble, and say so.
    with suppress(RuntimeError, OSError), hidden_stderr():
        if _install(_SECCOMP_THIS_THREAD):
            connect()


@contextmanager
def hidden_stderr() -> Iterator[None]:
    """What torch mentions about lookups and connections would worry people."""
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _install(whom: int) -> bool:
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    instructions = socket_filter(machine)
    program = _Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    answer = libc.syscall(
        ctypes.c_long(machine.seccomp),
        ctypes.c_long(_SECCOMP_SET_MODE_FILTER),
        ctypes.c_long(whom),
        ctypes.byref(program),
    )
    return bool(answer == 0)


def socket_filter(machine: _Machine) -> bytes:
    """The filter as the kernel reads it: socket() fails for some kinds, all else is allowed."""
    lines = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_IF_EQUAL, 0, 7, machine.audit),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 5, machine.socket),
        (_LOAD, 0, 0, _FAMILY),
        (_JUMP_IF_EQUAL, 4, 0, socket.AF_UNIX),
        (_LOAD, 0, 0, _TYPE),
        (_AND, 0, 0, _TYPE_BITS),
        (_JUMP_IF_EQUAL, 1, 0, socket.SOCK_DGRAM),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL_WITH | errno.EACCES),
    )
    return b"".join(struct.pack("HBBI", *line) for line in lines)
