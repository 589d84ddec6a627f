"""What checks may look at and ask: one object, so that tests can hand them any machine.

Files are read below `root`, where a test has its own /proc and /sys. All that may take its time
(a command, a lookup, a connection) is a function with a deadline.
"""

import errno
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.doctor.commands import Commands, Ran
from dlrover_cli.services.lookup import Lookup


@dataclass(frozen=True, slots=True)
class Space:
    """Of a file system, in bytes."""

    total: int
    free: int


def look_up(host: str, seconds: float) -> tuple[str, ...]:
    """The addresses of a host, each once. Raises TimeoutError or OSError."""
    found = Lookup(host, 0).addresses(seconds)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def reach(host: str, port: int, seconds: float) -> float:
    """How long it took until somebody took the connection. Raises OSError."""
    started = time.monotonic()
    with socket.create_connection((host, port), timeout=seconds):
        return time.monotonic() - started


def is_own_address(address: str) -> bool:
    """Whether an interface of this machine has it: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def is_port_free(port: int) -> bool:
    """Whether a server could listen there, on all addresses."""
    return not any(_is_taken(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _is_taken(family: socket.AddressFamily, port: int) -> bool:
    """Whatever else is in the way, such as a machine without IPv6, is no process on that port."""
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("", port))
            probe.listen(1)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def interface_names() -> tuple[str, ...]:
    return tuple(name for _, name in socket.if_nameindex())


def space_of(path: Path) -> Space:
    """Raises OSError."""
    seen = os.statvfs(path)
    return Space(seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine, and what a run on it would be asked for."""

    settings: LaunchSettings
    environ: Mapping[str, str]
    run: Callable[[Sequence[str], Mapping[str, str], float], Ran] = field(
        default_factory=lambda: Commands().run
    )
    directory: Path = field(default_factory=Path.cwd)
    root: Path = Path("/")
    seconds: float = 20.0
    """How long each check may take."""
    hostname: Callable[[], str] = socket.gethostname
    look_up: Callable[[str, float], tuple[str, ...]] = look_up
    reach: Callable[[str, int, float], float] = reach
    is_own_address: Callable[[str], bool] = is_own_address
    is_port_free: Callable[[int], bool] = is_port_free
    interfaces: Callable[[], tuple[str, ...]] = interface_names
    space: Callable[[Path], Space] = space_of

    @property
    def patience(self) -> float:
        """For one answer from outside, so that there is time left to say that it did not come."""
        return self.seconds * 0.75

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=self.environ.get("PATH", os.defpath))

    def text(self, path: str) -> str | None:
        """What a file of the system says, without blanks around; None if it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return None
