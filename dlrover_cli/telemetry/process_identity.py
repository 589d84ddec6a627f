"""A process named for good: its pid may be given to another one, its start time may not."""

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of one host."""

    pid: int
    start_time: int | None
    """In clock ticks after the boot, as the kernel tells it; None where it tells none."""
    boot_id: str
    host: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this pid now. Raises ProcessLookupError if there is none."""
        return cls(pid, _start_time(pid), _boot_id(), socket.gethostname())

    @classmethod
    def own(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for what names no process."""
        pid = data["pid"]
        if type(pid) is not int or not 0 < pid < _PIDS:
            raise ValueError(f"{pid!r} is no pid")
        return cls(pid, data["start_time"], str(data["boot_id"]), str(data["host"]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this host."""
        return self.host == socket.gethostname()

    def is_alive(self) -> bool:
        """Whether it runs on this host. A zombie does not."""
        if not self.is_here or self.boot_id != _boot_id():
            return False
        try:
            return _start_time(self.pid) == self.start_time and not _is_zombie(self.pid)
        except ProcessLookupError:
            return False

    def is_suspended(self) -> bool:
        """Whether somebody has stopped it for a while, by SIGSTOP or in a debugger."""
        with suppress(ProcessLookupError):
            return self.is_alive() and _stat(self.pid)[:1] in (["T"], ["t"])
        return False

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """Its pidfd, readable when it has ended; None if it has ended, or is not of this host."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            yield None
            return
        try:
            # Looked at after opening: from here on, the descriptor means this process or none.
            yield descriptor if self.is_alive() else None
        finally:
            os.close(descriptor)

    def signal(self, number: int) -> bool:
        """Send a signal to this process and to no other. False if it has ended."""
        with self.opened() as descriptor:
            if descriptor is None:
                return False
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                return False
            return True


_PIDS = 1 << 31
"""The kernel takes none from here on."""


def _start_time(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _is_zombie(pid: int) -> bool:
    """A process whose first thread has ended looks like one, and runs as long as others do."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in "ZX" and int(fields[17]) <= 1


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the command, which may contain anything.

    Empty for a process of a system that has no such file.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        os.kill(pid, 0)
        if Path("/proc/self/stat").exists():
            raise ProcessLookupError(f"there is no process {pid}") from None
        return []


def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
