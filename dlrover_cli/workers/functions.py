"""Workers that are Python functions, started by any of multiprocessing's methods.

With ``spawn``, the default, a worker is a command like any other: a new interpreter below the
nursery, which is handed a pickled call. ``fork`` and ``forkserver`` are in `forked`.
"""

import io
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.context import set_spawning_popen
from typing import Any

from dlrover_cli.errors import LaunchError, UsageError
from dlrover_cli.workers.api import StartRequest, WorkerLaunch, Workers
from dlrover_cli.workers.commands import Command, CommandStarter, CommandWorkers
from dlrover_cli.workers.forked import ForkedFunctions
from dlrover_cli.workers.function_call import ReturnSlot, call_of, cannot_start
from dlrover_cli.workers.inbox import Inbox

# What multiprocessing runs in a spawned process, with the payload and the pipe that tells of its
# parent's end in two descriptors: a payload in a pipe would block us until the worker reads it.
_MAIN = (
    "import sys; from multiprocessing import resource_tracker, spawn; "
    "resource_tracker._resource_tracker._fd = {tracker}; "
    "sys.exit(spawn._main({payload}, {parent}))"
)


class FunctionStarter:
    """Starts function workers with ``start_method``; ``name`` is what the processes are called."""

    def __init__(
        self,
        name: str,
        start_method: str,
        on_problem: Callable[[str], None] = lambda line: None,
    ) -> None:
        known = multiprocessing.get_all_start_methods()
        if start_method not in known:
            raise UsageError(
                f"there is no start method {start_method!r}", hint=f"choose from {', '.join(known)}"
            )
        self._name = name
        self._start_method = start_method
        self._on_problem = on_problem
        self._commands = CommandStarter(on_problem)

    def ready(self) -> None:
        """Nothing has to be loaded ahead."""

    def start(self, request: StartRequest, inbox: Inbox) -> Workers:
        """Start every worker of the request or none. Raises LaunchError."""
        if self._start_method != "spawn":
            context = multiprocessing.get_context(self._start_method)
            guard = self._commands.living_nursery()
            return ForkedFunctions(request, inbox, context, self._name, guard, self._on_problem)
        spawning = _Spawning(request, self._name)
        try:
            workers = self._commands.start_commands(request, spawning.commands, inbox)
        except LaunchError:
            spawning.close()
            raise
        spawning.started()
        return SpawnedFunctions(workers, spawning)

    def close(self, *, leave_survivors: bool) -> None:
        """End the nursery; unless told to leave it, what the workers left behind is killed."""
        self._commands.close(leave_survivors=leave_survivors)


class SpawnedFunctions:
    """One attempt's spawned functions: commands, and the files in memory that go with them."""

    def __init__(self, workers: CommandWorkers, spawning: "_Spawning") -> None:
        self._spawning = spawning
        self.pids = workers.pids
        self.signal = workers.signal
        self.kill = workers.kill
        self.tail = workers.tail
        self.last_output = workers.last_output
        self._close_workers = workers.close

    def close(self) -> None:
        """As the seam has it."""
        self._close_workers()
        self._spawning.close()


class _Spawning:
    """The commands of one attempt, and the descriptors behind them."""

    def __init__(self, request: StartRequest, name: str) -> None:
        self._slots = {each.local_rank: ReturnSlot(each.local_rank) for each in request.launches}
        self._parent, self._parent_alive = os.pipe2(os.O_CLOEXEC)
        self._payloads: list[int] = []
        try:
            self.commands = {
                launch.local_rank: self._command(request, launch, f"{name}{launch.local_rank}")
                for launch in request.launches
            }
        except LaunchError:
            self.close()
            raise

    def started(self) -> None:
        """The workers have their own descriptors of what only they read."""
        for fd in self._payloads:
            os.close(fd)
        self._payloads.clear()

    def close(self) -> None:
        """Release everything; worker's values have been read by then."""
        self.started()
        for slot in self._slots.values():
            slot.close()
        for fd in (self._parent, self._parent_alive):
            os.close(fd)

    def _command(self, request: StartRequest, launch: WorkerLaunch, name: str) -> Command:
        slot = self._slots[launch.local_rank]
        process = multiprocessing.get_context("spawn").Process(
            target=call_of(request, launch, slot), name=name
        )
        pickled = _pickle_into_child(process)
        payload = os.memfd_create(f"call-{launch.local_rank}")
        self._payloads.append(payload)
        with open(os.dup(payload), "wb") as file:
            file.write(pickled.data)
        os.lseek(payload, 0, os.SEEK_SET)
        tracker: int = resource_tracker.getfd()  # type: ignore[assignment]
        main = _MAIN.format(tracker=tracker, payload=payload, parent=self._parent)
        return Command(
            (
                os.fsdecode(spawn.get_executable()),
                *util._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                "-c",
                main,
                "--multiprocessing-fork",
            ),
            tuple(dict.fromkeys((tracker, payload, self._parent, *pickled.fds))),
            slot.value,
        )


@dataclass(frozen=True, slots=True)
class _Pickled:
    data: bytes
    fds: Sequence[int]


class _DescriptorCollector:
    """Stands in for multiprocessing's own starter of processes while an object is pickled."""

    DupFd = popen_spawn_posix._DupFd

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd


def _pickle_into_child(process: Any) -> _Pickled:
    """A process object as multiprocessing's ``spawn`` sends it. Raises LaunchError."""
    collector = _DescriptorCollector()
    buffer = io.BytesIO()
    set_spawning_popen(collector)  # type: ignore[arg-type]
    try:
        reduction.dump(spawn.get_preparation_data(process.name), buffer)
        reduction.dump(process, buffer)
    # The boundary to objects of the user, whose pickling may raise anything.
    except Exception as error:
        raise cannot_start(error) from error
    finally:
        set_spawning_popen(None)
    return _Pickled(buffer.getvalue(), collector.fds)
