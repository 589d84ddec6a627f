"""The seam between the agent and the ways to start workers.

A :class:`WorkerStarter` starts one attempt's workers and posts a :class:`WorkerExit` to the inbox
for each of them when it ends. The agent knows nothing about how they were started.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import WorkerStreams


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """What one worker needs to start."""

    local_rank: int
    args: tuple[Any, ...]
    env: Mapping[str, str]
    streams: WorkerStreams
    error_file: str
    has_stdin: bool = True
    """Whether it reads what the launcher would read; nothing otherwise."""


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One attempt's workers on this node."""

    attempt: int
    entrypoint: str | Callable[..., Any]
    launches: tuple[WorkerLaunch, ...]
    numa_options: Any = None
    is_silenced: Callable[[], bool] | None = None
    """Whether what the workers print has to wait, since a person is busy at the terminal."""
    lends_terminal: bool = False
    """Whether a worker may read from the launcher's terminal, in modes of its own."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """A worker ended: exit code, or the negative number of the signal that killed it."""

    attempt: int
    local_rank: int
    pid: int
    status: int
    time_ns: int
    return_value: Any = None
    usage: Mapping[str, float] = field(default_factory=dict)


class Workers(Protocol):
    """The running workers of one attempt."""

    def pids(self) -> dict[int, int]:
        """Local rank to process id, of all workers that were started."""
        ...

    def signal(self, local_rank: int, signum: int) -> None:
        """Send a signal to the worker's process group; a worker that has ended is left alone."""
        ...

    def kill(self, deadline: float) -> list[int]:
        """SIGKILL all workers with all their descendants; return the pids that would not go."""
        ...

    def last_output(self, local_rank: int) -> float | None:
        """When the worker last wrote something that can be observed (``time.monotonic``)."""
        ...

    def tail(self, local_rank: int) -> str | None:
        """The end of the worker's stderr, where it is at hand."""
        ...

    def close(self) -> None:
        """Flush the streams and release what belongs to this attempt."""
        ...


class WorkerStarter(Protocol):
    """A way to start workers; lives as long as its agent."""

    def ready(self) -> None:
        """Wait until workers can be started at once. Blocks."""
        ...

    def start(self, request: StartRequest, inbox: Inbox) -> Workers:
        """Start all workers of the request or none. Raises LaunchError."""
        ...

    def close(self, *, leave_survivors: bool) -> None:
        """End the starter; unless told to leave it, what the workers left behind is killed."""
        ...
