"""A function call on its way into a worker, and its value on the way back."""

import contextlib
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers.api import StartRequest, WorkerLaunch
from dlrover_cli.workers.bootstrap import BEAT_FILE, WORKER_DIRECTORY
from dlrover_cli.workers.bootstrap.in_worker.install import install


class Descriptor:
    """A file descriptor that is still one after being pickled into a child of multiprocessing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.fd)

    def __setstate__(self, duplicate: Any) -> None:
        self.fd = duplicate.detach()


class ReturnSlot:
    """Takes one worker's return value, in memory: nobody has to read while the worker writes."""

    def __init__(self, local_rank: int) -> None:
        self._local_rank = local_rank
        self.descriptor = Descriptor(os.memfd_create(f"return-value-{local_rank}"))

    def value(self) -> Any:
        """What the worker returned. Raises LaunchError if it cannot be made sense of here."""
        if os.fstat(self.descriptor.fd).st_size == 0:
            return None  # it left without returning, by os._exit
        with open(os.dup(self.descriptor.fd), "rb") as file:
            file.seek(0)
            try:
                return pickle.load(file)
            # The boundary to classes of the user, whose unpickling may raise anything.
            except Exception as error:
                raise LaunchError(
                    f"the value that local rank {self._local_rank} returned cannot be read: "
                    f"{type(error).__name__}: {error}",
                    hint="return values must be picklable, and importable in the launching process",
                ) from error

    def close(self) -> None:
        """Release the memory."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor.fd)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Everything that one worker needs; called in the worker."""

    function: Callable[..., Any]
    launch: WorkerLaunch
    numa_options: Any
    slot: Descriptor

    def __call__(self) -> None:
        """Make the call and put its value into the slot."""
        os.environ.update(self.launch.env)
        directory = self.launch.env.get(WORKER_DIRECTORY)
        if directory is not None:
            install(directory, self.launch.env.get(BEAT_FILE))
        from torch.distributed.elastic.multiprocessing.errors import record

        value = record(self._bound())(*self.launch.args)
        with open(self.slot.fd, "wb") as file:
            pickle.dump(value, file)

    def _bound(self) -> Callable[..., Any]:
        if self.numa_options is None:
            return self.function
        from torch.numa.binding import _maybe_wrap_with_numa_binding

        bound: Callable[..., Any] = _maybe_wrap_with_numa_binding(
            self.function, gpu_index=self.launch.local_rank, numa_options=self.numa_options
        )
        return bound


def call_of(request: StartRequest, launch: WorkerLaunch, slot: ReturnSlot) -> FunctionCall:
    """The call that one launch of a request stands for."""
    if isinstance(request.entrypoint, str):
        raise TypeError(f"{request.entrypoint!r} is a command, not a function")
    return FunctionCall(request.entrypoint, launch, request.numa_options, slot.descriptor)


def cannot_start(error: Exception) -> LaunchError:
    """Why multiprocessing did not start a worker, in a sentence."""
    if isinstance(error, OSError):
        return LaunchError(
            f"cannot start the worker function: {error.strerror or error}",
            hint="the system may be at a limit: see ulimit -u, ulimit -n and the free memory",
        )
    if isinstance(error, RuntimeError) and "bootstrapping" in str(error):
        return LaunchError(
            "the worker function cannot be started while its own module is being imported",
            hint='call elastic_launch below `if __name__ == "__main__":`',
        )
    return LaunchError(
        f"the worker function or its arguments cannot be pickled: {type(error).__name__}: {error}",
        hint='use a function at the top level of a module, or start_method="fork"',
    )
