"""Failures as an agent would report them, made from what a test cares about.

    exit_failure(3)
    exception_failure("RuntimeError", "CUDA error: an illegal memory access", rank=5, steps=120)
    signal_failure("SIGKILL", collateral=[0, 1, 2])

Whatever is not given has a fixed, plausible value, so that a test gives the same failure each time.
"""

import signal as signals
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure, WorkerPhase
from dlrover_cli.words import signal_name

_TIMESTAMP = 1_700_000_000
_FIRST_PID = 1000
_NANOSECONDS = 1_000_000_000


class Facts(TypedDict, total=False):
    """What every kind of failure can be given besides its cause."""

    rank: int
    """The global rank of the worker that failed first; by default 0."""
    local_rank: int
    """By default the same as `rank`."""
    collateral: Sequence[int]
    """Global ranks that went down only because of it."""
    phase: WorkerPhase
    """How far the worker had come; by default `training`, except where it never started."""
    log: str
    """The tail of the log, at the end of `log_content`."""
    node_rank: int
    host: str
    run_id: str
    timestamp: int
    attempt: int
    restart_count: int
    restarts_left: int
    generation: int
    steps: int | None
    extra_info: Mapping[str, Any]


def exception_failure(
    type_name: str = "RuntimeError", message: str = "it broke", **facts: Unpack[Facts]
) -> AgentFailureInfo:
    """A worker raised: the class and the message of its exception."""
    worker = _Cause(exit_code=1, exception_type=type_name, message=f"{type_name}: {message}")
    return _failure(FailureKind.EXCEPTION, worker, facts)


def exit_failure(code: int = 1, **facts: Unpack[Facts]) -> AgentFailureInfo:
    """A worker ended with this exit code and without an exception."""
    return _failure(FailureKind.EXIT, _Cause(exit_code=code), facts)


def signal_failure(
    name: str | int = "SIGKILL", *, oom: bool = False, **facts: Unpack[Facts]
) -> AgentFailureInfo:
    """A signal ended a worker, e.g. `"SIGSEGV"` or `11`; with `oom`, since memory ran out."""
    number = signals.Signals[name] if isinstance(name, str) else signals.Signals(name)
    return _failure(FailureKind.SIGNAL, _Cause(signal=int(number), oom=oom), facts)


def hang_failure(
    stacks: Mapping[int, str] | None = None, **facts: Unpack[Facts]
) -> AgentFailureInfo:
    """Nothing moved any more; the worker is the odd one out, the stacks are by global rank."""
    failure = _failure(FailureKind.HANG, _Cause(), facts)
    failure.stacks = {str(rank): stack for rank, stack in (stacks or {}).items()}
    return failure


def start_up_failure(
    type_name: str = "ModuleNotFoundError",
    message: str = "No module named 'flash_attn'",
    **facts: Unpack[Facts],
) -> AgentFailureInfo:
    """A worker raised before it trained: an import, the arguments, the first collective."""
    worker = _Cause(exit_code=1, exception_type=type_name, message=f"{type_name}: {message}")
    return _failure(FailureKind.START_UP, worker, {"phase": WorkerPhase.START_UP, **facts})


class _Cause(TypedDict, total=False):
    exit_code: int
    signal: int
    exception_type: str
    message: str
    oom: bool


def _failure(kind: FailureKind, cause: _Cause, facts: Facts) -> AgentFailureInfo:
    rank = facts.get("rank", 0)
    timestamp = facts.get("timestamp", _TIMESTAMP)
    phase = facts.get("phase", WorkerPhase.TRAINING)
    root = WorkerFailure(
        global_rank=rank,
        local_rank=facts.get("local_rank", rank),
        pid=_FIRST_PID + rank,
        traceback=_traceback(cause),
        time_ns=timestamp * _NANOSECONDS,
        root_cause=True,
        phase=phase,
        **cause,
    )
    others = [
        WorkerFailure(
            global_rank=other,
            local_rank=other,
            pid=_FIRST_PID + other,
            signal=int(signals.SIGTERM),
            time_ns=root.time_ns + 1 + index,
            phase=phase,
        )
        for index, other in enumerate(facts.get("collateral", ()))
    ]
    return AgentFailureInfo(
        timestamp=timestamp,
        log_content=_log_content(root, others, facts.get("log", "")),
        extra_info=dict(facts.get("extra_info", {})),
        node_rank=facts.get("node_rank", 0),
        kind=kind,
        workers=(root, *others),
        attempt=facts.get("attempt", 0),
        restart_count=facts.get("restart_count", 0),
        restarts_left=facts.get("restarts_left", 3),
        steps=facts.get("steps"),
        run_id=facts.get("run_id", "test-run"),
        host=facts.get("host", "node0"),
        generation=facts.get("generation", 0),
        phase=phase,
    )


def _traceback(cause: _Cause) -> str:
    if "message" not in cause:
        return ""
    return (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        f"{cause['message']}\n"
    )


def _log_content(root: WorkerFailure, others: Sequence[WorkerFailure], log: str) -> str:
    parts = [_ending(root), root.traceback.rstrip(), *map(_ending, others), log]
    return "\n".join(part for part in parts if part)


def _ending(worker: WorkerFailure) -> str:
    if worker.signal is not None:
        return f"rank {worker.global_rank} was killed by {signal_name(worker.signal)}"
    if worker.exit_code is None:
        return f"rank {worker.global_rank} hangs"
    return f"rank {worker.global_rank} exited with code {worker.exit_code}"
