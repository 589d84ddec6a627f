"""Workers that are Python functions: torch's own multiprocessing, with its start methods.

Return values, pickling rules and start methods are torch's; what is added is that an end wakes the
agent instead of being polled for, that the shutdown timeout holds, and that the nursery guards the
processes against an agent that dies without a word.
"""

import inspect
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, start_processes

from dlrover_cli.errors import LaunchError
from dlrover_cli.workers.api import StartRequest, WorkerExit
from dlrover_cli.workers.commands import NurseryClient
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPlan

# Sentinels and result pipes wake the watcher; this only bounds how long a missed one can matter.
_WATCH_SECONDS = 1.0


class FunctionStarter:
    """Starts function workers with ``start_method``."""

    def __init__(
        self,
        name: str,
        start_method: str,
        shutdown_timeout: float,
        log_line_prefixes: Mapping[int, str] | None = None,
    ) -> None:
        self._name = name
        self._start_method = start_method
        self._shutdown_timeout = shutdown_timeout
        self._prefixes = log_line_prefixes
        self._guard = NurseryClient()

    def start(self, request: StartRequest, inbox: Inbox) -> "FunctionWorkers":
        """Start every worker of the request. Raises LaunchError."""
        offered = {
            "name": self._name,
            "entrypoint": request.entrypoint,
            "args": {launch.local_rank: launch.args for launch in request.launches},
            "envs": {launch.local_rank: dict(launch.env) for launch in request.launches},
            "logs_specs": _SettledLogs(request),
            "log_line_prefixes": dict(self._prefixes) if self._prefixes else None,
            "start_method": self._start_method,
            "numa_options": request.numa_options,
            "duplicate_stdout_filters": _needles(request.launches[0].streams.stdout),
            "duplicate_stderr_filters": _needles(request.launches[0].streams.stderr),
        }
        accepted = inspect.signature(start_processes).parameters
        try:
            context = start_processes(**{k: v for k, v in offered.items() if k in accepted})
        except (OSError, AttributeError, TypeError, pickle.PicklingError) as error:
            raise LaunchError(
                f"cannot start the worker function: {type(error).__name__}: {error}",
                hint="with the spawn start method the function and its arguments must be "
                "importable and picklable",
            ) from error
        self._guard.request({"op": "guard", "pids": list(context.pids().values())})
        return FunctionWorkers(request, inbox, context, self._shutdown_timeout)

    def close(self, *, leave_survivors: bool) -> None:
        """End the guard; the workers themselves are ended by their own ``close``."""
        self._guard.request({"op": "leave"})
        self._guard.close()


class FunctionWorkers:
    """One attempt's function workers. Owns the thread that waits for their end."""

    def __init__(
        self, request: StartRequest, inbox: Inbox, context: Any, shutdown_timeout: float
    ) -> None:
        self._attempt = request.attempt
        self._inbox = inbox
        self._context = context
        self._close_context: Callable[..., None] = context.close
        self._closing = threading.Lock()
        # torch ends the other workers itself when it sees one fail, with a time-out of its own.
        context.close = lambda death_sig=None, timeout=shutdown_timeout: self._close_once(
            death_sig, int(timeout)
        )
        self._pids: dict[int, int] = dict(context.pids())
        self._thread = threading.Thread(target=self._watch, name="function-workers", daemon=True)
        self._thread.start()

    def pids(self) -> dict[int, int]:
        return dict(self._pids)

    def signal(self, local_rank: int, signum: int) -> None:
        process = self._context._pc.processes[local_rank]
        if process.is_alive():
            os.kill(process.pid, signum)

    def kill(self, deadline: float) -> list[int]:
        for process in self._context._pc.processes:
            if process.is_alive():
                process.kill()
        end = time.monotonic() + deadline
        for process in self._context._pc.processes:
            process.join(max(0.0, end - time.monotonic()))
        return [process.pid for process in self._context._pc.processes if process.is_alive()]

    def tail(self, local_rank: int) -> str | None:
        return None

    def close(self) -> None:
        self._close_once(None, 0)
        self._thread.join(timeout=5.0)

    def _close_once(self, death_sig: Any, timeout: int) -> None:
        with self._closing:
            self._close_context(death_sig, timeout)

    def _watch(self) -> None:
        sources: list[Any] = [*self._context._pc.sentinels]
        sources += [queue._reader for queue in self._context._ret_vals.values()]
        while True:
            ready = connection.wait(sources, timeout=_WATCH_SECONDS)
            result = self._context.wait(0)
            if result is not None:
                break
            for source in ready:  # a result that was taken stays readable at its end
                sources.remove(source)
        now = time.time_ns()
        for local_rank, pid in self._pids.items():
            failure = result.failures.get(local_rank)
            if failure is not None:
                status = failure.exitcode
            elif result.failures:
                status = self._context._pc.processes[local_rank].exitcode or 0
            else:
                status = 0
            self._inbox.post(
                WorkerExit(
                    self._attempt,
                    local_rank,
                    pid,
                    status,
                    now,
                    return_value=result.return_values.get(local_rank),
                )
            )


class _SettledLogs(LogsSpecs):
    """Hands torch the destinations that the agent has already decided on."""

    def __init__(self, request: StartRequest) -> None:
        super().__init__()
        self._request = request

    @property
    def root_log_dir(self) -> str:
        return ""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        dest = LogsDest()
        for launch in self._request.launches:
            for plan, files, tees in (
                (launch.streams.stdout, dest.stdouts, dest.tee_stdouts),
                (launch.streams.stderr, dest.stderrs, dest.tee_stderrs),
            ):
                files[launch.local_rank] = plan.file or ""
                if plan.file and plan.console is not None:
                    tees[launch.local_rank] = plan.file
            dest.error_files[launch.local_rank] = launch.error_file
        first = self._request.launches[0].streams
        dest.filtered_stdout = first.stdout.line_filter.path if first.stdout.line_filter else ""
        dest.filtered_stderr = first.stderr.line_filter.path if first.stderr.line_filter else ""
        return dest


def _needles(plan: StreamPlan) -> list[str] | None:
    return list(plan.line_filter.needles) if plan.line_filter else None
