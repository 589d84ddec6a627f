"""What is known of a failure, gathered on the node where it happened."""

import json
import re
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlrover_cli.agent.progress import Hang
from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure, WorkerPhase
from dlrover_cli.diagnosis.headline import headline_of
from dlrover_cli.diagnosis.last_words import HEADING
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.decide import Counters, Limits
from dlrover_cli.words import printable, signal_name
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.beats import Beat
from dlrover_cli.workers.bootstrap.in_worker.exits import EXCEPTION_FILE, EXIT_FILE, THREAD_FILE
from dlrover_cli.workers.bootstrap.in_worker.faults import FAULT_FILE
from dlrover_cli.workers.stacks import odd_one_out, summarise

_LOG_TAIL_LINES = 40
_LOG_TAIL_CHARACTERS = 8_000
_LONGEST_LINE = 200
_LONGEST_DUMP = 1 << 16
_LONGEST_RECORD = 1 << 20
# What a rank says when a peer went away: true, but never the reason.
_COLLATERAL_MESSAGES = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "connection was closed",
    "connection was likely closed",
    "remote process exited",
    "communicator was aborted",
)
_COLLATERAL_SIGNALS = frozenset({signal.SIGTERM, signal.SIGABRT})
# What a process does to itself, as opposed to what somebody sends to it.
_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
_FATAL = "Fatal Python error: "
# torch's own excepthook puts this before each line once a process group stands.
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
_EXITS_WITH_A_TEXT = ("sys.exit('", 'sys.exit("')
_CPP_EXCEPTION = re.compile(r"terminate called .*\n  what\(\):  .*")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a worker wrote down about its own end."""

    type: str | None = None
    message: str = ""
    traceback: str = ""
    time_ns: int = 0
    phase: WorkerPhase = WorkerPhase.UNKNOWN
    frames: tuple[Mapping[str, Any], ...] = ()
    """The user's own, outermost first: ``file``, ``line``, ``function`` and maybe ``locals``."""


def worker_failure(
    exit_: WorkerExit,
    global_rank: int,
    error_file: str,
    *,
    worker_dir: Path | None = None,
    beat: Beat | None = None,
    tail: str = "",
    oom: bool = False,
) -> WorkerFailure:
    """One failed worker: its status, and what it left behind about it.

    ``worker_dir`` is what the worker was told to be its directory, ``beat`` its last, ``tail`` the
    end of its stderr. ``oom`` says whether the kernel has killed for memory since the attempt
    began; it counts only where it fits.
    """
    recorded = _best_record(exit_, error_file, worker_dir, tail)
    status = _status_of(exit_, recorded)
    phase = recorded.phase
    if phase is WorkerPhase.UNKNOWN and beat is not None:
        phase = beat.phase
    return WorkerFailure(
        global_rank=global_rank,
        local_rank=exit_.local_rank,
        pid=exit_.pid,
        exit_code=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        exception_type=recorded.type,
        message=recorded.message,
        traceback=recorded.traceback,
        time_ns=recorded.time_ns or exit_.time_ns,
        phase=phase,
        oom=oom and exit_.status == -signal.SIGKILL,
    )


def hang_failures(
    hang: Hang,
    pids: Mapping[int, int],
    global_ranks: Mapping[int, int],
    beats: Mapping[int, Beat],
    stacks: Mapping[int, str],
    now: float,
    now_ns: int,
) -> list[WorkerFailure]:
    """One entry per rank that hangs, the most suspicious one first; all keyed by local rank.

    ``now`` and ``now_ns`` are the same moment on ``time.monotonic`` and ``time.time_ns``.
    """
    odd = odd_one_out({rank: stacks[rank] for rank in hang.ranks if rank in stacks})
    first = (odd,) if odd is not None else hang.behind[:1]
    since_ns = now_ns - int((now - hang.since) * 1e9)
    failures = []
    for local_rank in sorted(hang.ranks, key=lambda rank: (rank not in first, rank)):
        beat = beats.get(local_rank, Beat())
        steps = "before its first step" if not beat.steps else f"after {beat.steps} steps"
        failures.append(
            WorkerFailure(
                global_rank=global_ranks[local_rank],
                local_rank=local_rank,
                pid=pids.get(local_rank, 0),
                message=f"has not moved for {now - hang.since:.0f} s, {steps}",
                traceback=stacks.get(local_rank, ""),
                time_ns=since_ns,
                phase=beat.phase,
            )
        )
    return failures


def read_exception(worker_dir: Path) -> Recorded | None:
    """The exception that ended the worker's main thread, if one did."""
    return _read_record(worker_dir / EXCEPTION_FILE)


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
    # A signal on top of an exception is how the process ended, not why.
    if failure.exception_type is None and failure.signal in _COLLATERAL_SIGNALS:
        return True
    words = failure.message
    if failure.exception_type is None:
        words = "\n".join([words, *tail.splitlines()[-5:]])
    return any(message in words.lower() for message in _COLLATERAL_MESSAGES)


def failure_info(
    failures: Sequence[WorkerFailure],
    tails: Callable[[int], str],
    node_rank: int,
    run_id: str,
    counters: Counters,
    limits: Limits,
    *,
    steps: int | None = None,
    stacks: Mapping[int, str] | None = None,
) -> AgentFailureInfo:
    """The failure of this node, with the root cause marked and its log first.

    ``stacks`` (by global rank) makes it a hang: the first of ``failures`` is then the root cause.
    """
    by_cause = list(failures)
    if stacks is None:
        by_cause.sort(key=lambda each: (is_collateral(each, tails(each.local_rank)), each.time_ns))
    root = replace(by_cause[0], root_cause=True)
    workers = (root, *by_cause[1:])
    return AgentFailureInfo(
        timestamp=root.time_ns // 1_000_000_000,
        log_content=_log_content(workers, tails, stacks),
        node_rank=node_rank,
        kind=FailureKind.HANG if stacks is not None else _kind(root),
        workers=workers,
        attempt=counters.attempt,
        restart_count=counters.restart_count,
        restarts_left=max(0, limits.max_restarts - counters.restart_count),
        steps=steps,
        run_id=run_id,
        host=socket.gethostname(),
        generation=counters.generation,
        phase=root.phase,
        stacks={str(rank): text for rank, text in sorted((stacks or {}).items())},
    )


def describe_status(failure: WorkerFailure) -> str:
    """How a worker ended, in words."""
    if failure.signal is not None:
        reason = ", the kernel was out of memory" if failure.oom else ""
        return f"was killed by {signal_name(failure.signal)}{reason}"
    if failure.exit_code is not None:
        return f"exited with code {failure.exit_code}"
    return failure.message or "does not move"


def describe_end(failure: WorkerFailure) -> str:
    """How a worker ended and, where an exception or a text did, which one; one line of words."""
    status = describe_status(failure)
    if failure.exception_type is None and not failure.message.startswith(_EXITS_WITH_A_TEXT):
        return status
    return f"{status} ({_first_line(failure)})"


def _status_of(exit_: WorkerExit, recorded: Recorded) -> int:
    """The status that the worker ends with for what has ended it.

    An interpreter that goes away may crash, if threads of a library still want something of it:
    sometimes it does and sometimes it does not, after the same exception. So the status is the one
    that it had chosen for the exception. The journal has the other, with the worker's exit.
    """
    if recorded.type is None or -exit_.status not in _CRASHES:
        return exit_.status
    return -signal.SIGINT if recorded.type == "KeyboardInterrupt" else ExitCode.FAILURE


def _best_record(
    exit_: WorkerExit, error_file: str, worker_dir: Path | None, tail: str
) -> Recorded:
    """The record that says most about this end."""
    exception = None if worker_dir is None else read_exception(worker_dir)
    if exception is not None:
        return exception
    if exit_.status < 0:
        fault = _fault(worker_dir, tail)
        if fault is not None:
            return fault
    decorated = read_error_file(error_file)
    if decorated:
        return Recorded(
            type=decorated.get("type"),
            message=decorated["message"],
            traceback=decorated.get("traceback", ""),
        )
    if exit_.status < 0 or worker_dir is None:
        return Recorded()
    return _exit_path(worker_dir, exit_.status)


def _fault(worker_dir: Path | None, tail: str) -> Recorded | None:
    """What a crash left: faulthandler's dump, and what the C++ runtime said before it."""
    dump = "" if worker_dir is None else _read_end(worker_dir / FAULT_FILE, _LONGEST_DUMP)
    if _FATAL not in dump:  # a script that enables faulthandler itself has it on stderr
        dump = tail
    _, found, dump = dump.rpartition(_FATAL)
    spoken = _CPP_EXCEPTION.findall(tail)
    if not found and not spoken:
        return None
    message = "\n".join([*(dump.splitlines()[:1] if found else []), *spoken[-1:]])
    return Recorded(message=message, traceback=f"{_FATAL}{dump.rstrip()}" if found else "")


def _exit_path(worker_dir: Path, status: int) -> Recorded:
    """An exit without an exception: who called it, and whether a thread had died before."""
    call = _read_json(worker_dir / EXIT_FILE)
    thread = _read_json(worker_dir / THREAD_FILE)
    message = []
    traceback = ""
    exited = Recorded()
    if call is not None and call.get("code") == status:
        exited = _recorded(call)
        where = exited.frames[-1] if exited.frames else None
        message.append(str(call.get("call", "")) + (f" at {_at(where)}" if where else ""))
        traceback = "".join(f"  {_at(frame)}\n" for frame in exited.frames)
    if thread is not None:
        died = _recorded(thread)
        message.append(f"thread {thread.get('thread', '')!r} died of {died.type}: {died.message}")
        traceback = died.traceback or traceback
        exited = exited if exited.time_ns else died
    return Recorded(
        message="\n".join(message),
        traceback=traceback.rstrip(),
        time_ns=exited.time_ns,
        phase=exited.phase,
        frames=exited.frames,
    )


def _read_record(path: Path) -> Recorded | None:
    document = _read_json(path)
    return None if document is None else _recorded(document)


def _recorded(document: Mapping[str, Any]) -> Recorded:
    # A worker wrote it, so nothing about it is certain.
    phase = document.get("phase")
    time_ns = document.get("time_ns")
    frames = document.get("frames")
    return Recorded(
        type=None if document.get("type") is None else str(document["type"]),
        message=str(document.get("message", "")),
        traceback=str(document.get("traceback", "")),
        time_ns=time_ns if isinstance(time_ns, int) else 0,
        phase=WorkerPhase(phase) if phase in list(WorkerPhase) else WorkerPhase.UNKNOWN,
        frames=tuple(frame for frame in frames if isinstance(frame, dict))
        if isinstance(frames, list)
        else (),
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_LONGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _read_end(path: Path, longest: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - longest))
            return file.read(longest).decode("utf-8", "replace")
    except OSError:
        return ""


def _at(frame: Mapping[str, Any]) -> str:
    return f"{frame.get('file')}:{frame.get('line')} in {frame.get('function')}"


def _kind(failure: WorkerFailure) -> FailureKind:
    # Python ends itself with the signal that a KeyboardInterrupt came from.
    interrupted = failure.exception_type == "KeyboardInterrupt"
    if failure.signal is not None and (failure.exception_type is None or interrupted):
        return FailureKind.SIGNAL
    if failure.phase is WorkerPhase.START_UP:
        return FailureKind.START_UP
    return FailureKind.EXIT if failure.exception_type is None else FailureKind.EXCEPTION


def _log_content(
    workers: Sequence[WorkerFailure],
    tails: Callable[[int], str],
    stacks: Mapping[int, str] | None,
) -> str:
    """For people: the root cause with all that it said, then one line for each of the others."""
    root, *others = workers
    parts = [f"rank {root.global_rank} {describe_status(root)}"]
    if stacks is not None:
        parts.append(summarise(stacks))
    elif root.message:
        parts.append(headline_of(root))
    parts.append(root.traceback.rstrip())
    tail = _tail_without(tails(root.local_rank), root.traceback)
    if tail:
        parts.append(f"{HEADING}\n{tail}")
    parts += [_one_line(other) for other in others]
    return "\n".join(part for part in parts if part)


def _one_line(failure: WorkerFailure) -> str:
    line = f"rank {failure.global_rank} {describe_status(failure)}"
    if failure.exit_code is None and failure.signal is None:
        return line
    headline = _first_line(failure)
    return f"{line}: {headline}" if headline else line


def _first_line(failure: WorkerFailure) -> str:
    # An exception without words leaves its name and a colon.
    line = headline_of(failure).strip().partition("\n")[0][:_LONGEST_LINE].removesuffix(":")
    return printable(line)  # what a worker wrote does not steer the terminal


def _tail_without(tail: str, traceback: str) -> str:
    """The last lines of a log, without a traceback that has been shown already."""
    text = _RANK_PREFIX.sub("", tail)
    shown = _RANK_PREFIX.sub("", traceback).strip()
    if shown and shown in text:
        before, _, after = text.rpartition(shown)
        text = before + after
    return _last_lines(text.strip())


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])[-_LOG_TAIL_CHARACTERS:]
