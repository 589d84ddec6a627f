"""Who listens on a port, as the kernel tells it; processes of others stay unknown."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import printable

_LISTENING = "0A"
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Listener:
    """A process and how it was called."""

    pid: int
    command: str


def listener_on(machine: Machine, port: int) -> Listener | None:
    """The process that has the port; None if nobody has, or if we may not know."""
    sockets = set(_inodes(machine, port))
    if not sockets:
        return None
    for folder in (machine.root / "proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(each) in sockets for each in (folder / "fd").iterdir()):
                return Listener(int(folder.name), command_of(folder))
    return None


def command_of(process: Path) -> str:
    """Its command line, cut to what fits a sentence; of a process without one its name."""
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    name = printable(words).strip() or (process / "comm").read_text().strip()
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _inodes(machine: Machine, port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for line in (machine.text(f"/proc/net/{table}") or "").splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{words[9]}]"
