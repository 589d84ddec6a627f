"""What is known of a failure, gathered on the node where it happened."""

import json
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure
from dlrover_cli.failover.decide import Counters, Limits
from dlrover_cli.workers.api import WorkerExit

_LOG_TAIL_LINES = 40
_LOG_TAIL_CHARACTERS = 8_000
# What a rank says when a peer went away: true, but never the reason.
_COLLATERAL_MESSAGES = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "connection was closed",
    "remote process exited",
)
_COLLATERAL_SIGNALS = frozenset({signal.SIGTERM, signal.SIGABRT})


def worker_failure(exit_: WorkerExit, global_rank: int, error_file: str) -> WorkerFailure:
    """One failed worker: its status, and what it left in its error file."""
    recorded = read_error_file(error_file)
    return WorkerFailure(
        global_rank=global_rank,
        local_rank=exit_.local_rank,
        pid=exit_.pid,
        exit_code=exit_.status if exit_.status >= 0 else None,
        signal=-exit_.status if exit_.status < 0 else None,
        exception_type=recorded.get("type"),
        message=recorded.get("message", ""),
        traceback=recorded.get("traceback", ""),
        time_ns=recorded.get("time_ns", exit_.time_ns),
    )


def read_error_file(path: str) -> dict[str, Any]:
    """The exception that a worker recorded (torch's ``@record`` format); empty if there is none."""
    try:
        document = json.loads(Path(path).read_text())
        message = document["message"]
        if isinstance(message, str):
            return {"message": message}
        text = str(message.get("message", ""))
        extra = message.get("extraInfo", {})
        name = text.partition(":")[0]
        return {
            "message": text,
            "type": name if name.isidentifier() else None,
            "traceback": str(extra.get("py_callstack", "")),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def is_collateral(failure: WorkerFailure, tail: str) -> bool:
    """Whether this looks like a rank that went down only because another one did."""
    if failure.signal in _COLLATERAL_SIGNALS:
        return True
    words = (failure.message or "\n".join(tail.splitlines()[-5:])).lower()
    return any(message in words for message in _COLLATERAL_MESSAGES)


def failure_info(
    failures: Sequence[WorkerFailure],
    tails: Callable[[int], str],
    node_rank: int,
    run_id: str,
    counters: Counters,
    limits: Limits,
) -> AgentFailureInfo:
    """The failure of this node, with the root cause marked and its log first."""
    by_cause = sorted(
        failures, key=lambda each: (is_collateral(each, tails(each.local_rank)), each.time_ns)
    )
    root = replace(by_cause[0], root_cause=True)
    workers = (root, *by_cause[1:])
    return AgentFailureInfo(
        timestamp=root.time_ns // 1_000_000_000,
        log_content=_log_content(workers, tails),
        node_rank=node_rank,
        kind=_kind(root),
        workers=workers,
        attempt=counters.attempt,
        restart_count=counters.restart_count,
        restarts_left=max(0, limits.max_restarts - counters.restart_count),
        run_id=run_id,
        host=socket.gethostname(),
        generation=counters.generation,
    )


def describe_status(failure: WorkerFailure) -> str:
    """How a worker ended, in words."""
    if failure.signal is not None:
        return f"was killed by {signal_name(failure.signal)}"
    return f"exited with code {failure.exit_code}"


def signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _kind(failure: WorkerFailure) -> FailureKind:
    if failure.signal is not None:
        return FailureKind.SIGNAL
    if failure.exception_type is not None:
        return FailureKind.EXCEPTION
    return FailureKind.EXIT


def _log_content(workers: Sequence[WorkerFailure], tails: Callable[[int], str]) -> str:
    root, *others = workers
    parts = [f"rank {root.global_rank} {describe_status(root)}"]
    if root.message:
        parts.append(root.message)
    parts.append(root.traceback or _last_lines(tails(root.local_rank)))
    parts += [f"rank {other.global_rank} {describe_status(other)}" for other in others]
    return "\n".join(part for part in parts if part)


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])[-_LOG_TAIL_CHARACTERS:]
