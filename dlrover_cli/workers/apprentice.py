"""A fork of the zygote that has loaded more, as the first workers have shown to be needed.

It loads in a process of its own, since a module may do anything when it is imported, and the
zygote is what the running workers depend on. Then it forks workers ahead for the zygote: each in
two steps, so that the zygote, as the nearest subreaper, becomes its parent and learns of its end.

Requests to it      {"op": "raise", "fds": [socket]}      the channel at which the new one waits
Its only report     {"ready": bool}
A new one's first   {"pid": int}                          when the zygote has become its parent
"""

import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlrover_cli.workers.nursery import Channel

_RAISE_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.001


@dataclass(slots=True)
class Apprentice:
    """The zygote's end."""

    pid: int
    channel: Channel
    is_ready: bool = False

    def has_answered(self) -> bool:
        """Whether it is known to be ready, or to be gone; asks once without waiting."""
        if self.is_ready or not _can_read(self.channel, 0):
            return self.is_ready
        self.is_ready = _first(self.channel).get("ready", False)
        return True

    def fork_ahead(self) -> tuple[int, Channel] | None:
        """The pid of one that waits, and where it does; None if the apprentice is of no use."""
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        try:
            with theirs:
                self.channel.send({"op": "raise", "fds": [theirs.fileno()]}, [theirs.fileno()])
            if _can_read(channel, _RAISE_SECONDS):
                return int(_first(channel)["pid"]), channel
        except (OSError, KeyError):
            pass
        channel.close()
        return None

    def close(self) -> None:
        """It ends when its channel closes."""
        self.channel.close()


def serve(
    channel: Channel,
    load: Callable[[], str | None],
    zygote: int,
    leave_home: Callable[[int], None],
) -> Channel:
    """The apprentice's life. Returns only in a worker that it forked: where that one waits."""
    ready = load() is None
    channel.send({"ready": ready})
    while ready:
        try:
            for _, fds in channel.receive():
                if _fork_in_two_steps():
                    channel.close()
                    waiting = Channel(socket.socket(fileno=fds[0]))
                    _await_adoption(zygote)
                    leave_home(zygote)
                    waiting.send({"pid": os.getpid()})
                    return waiting
                for fd in fds:
                    os.close(fd)
        except (EOFError, OSError):
            break
    os._exit(0)


def names_in(path: str) -> Sequence[str]:
    """The modules that a worker wrote down; none as long as it has not."""
    try:
        with open(path) as file:
            return tuple(file.read().split())
    except (OSError, ValueError):
        return ()


def _fork_in_two_steps() -> bool:
    """True in a grandchild, whose parent is gone or about to be."""
    child = os.fork()
    if child == 0:
        if os.fork() != 0:
            os._exit(0)
        return True
    os.waitpid(child, 0)
    return False


def _await_adoption(zygote: int) -> None:
    deadline = time.monotonic() + _RAISE_SECONDS
    while os.getppid() != zygote:
        if time.monotonic() > deadline:
            os._exit(0)
        time.sleep(_LOOK_AGAIN_SECONDS)


def _can_read(channel: Channel, seconds: float) -> bool:
    return bool(select.select([channel], [], [], seconds)[0])


def _first(channel: Channel) -> dict[str, Any]:
    try:
        return next((message for message, _ in channel.receive()), {})
    except EOFError:
        return {}
