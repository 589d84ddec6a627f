"""What makes two failures the same failure: its kind, its words without their numbers, its place.

A fingerprint is a text that a person can read. It leaves out what differs from one attempt to the
next although the trouble is the same: pids, addresses, sizes, ranks, hosts, temporary files.
"""

import re

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure, WorkerPhase

_LONGEST_WORDS = 300
_LONGEST_READ = 4_000


def fingerprint(info: AgentFailureInfo) -> str:
    """The identity of a failure; equal for the same failure of another attempt."""
    worker = culprit(info)
    phase = phase_of(info)
    if info.kind is FailureKind.HANG:
        return f"hang during {phase}"
    if worker is None:
        return f"{info.kind.value} during {phase}"
    if worker.exception_type is not None:
        words = normalised(worker.message)
        place = last_user_frame(worker.traceback)
        return " | ".join(part for part in (worker.exception_type, words, place) if part)
    if worker.signal is not None:
        return f"signal {worker.signal} during {phase}"
    words = normalised(worker.message)
    return " | ".join(filter(None, (f"exit code {worker.exit_code} during {phase}", words)))


def culprit(info: AgentFailureInfo) -> WorkerFailure | None:
    """The worker that a failure is judged by: the root cause, else the first that is listed."""
    return info.root_cause or next(iter(info.workers), None)


def phase_of(info: AgentFailureInfo) -> WorkerPhase:
    """How far the worker had come; a failure of that kind may be all that is known of it."""
    return WorkerPhase.START_UP if info.kind is FailureKind.START_UP else info.phase


def normalised(message: str) -> str:
    """A message without what changes from one time to the next; `#` stands for it."""
    text = " ".join(message[:_LONGEST_READ].split())
    for changing in _CHANGING:
        text = changing.sub("#", text)
    return text[:_LONGEST_WORDS]


def last_user_frame(traceback: str) -> str:
    """The innermost place in a Python traceback that is not a library's; empty if there is none."""
    frames = [found for found in _FRAME.finditer(traceback) if not _LIBRARY.search(found["file"])]
    if not frames:
        return ""
    frame = frames[-1]
    file = frame["file"].rpartition("/")[2]
    function = f" in {frame['function'].strip()}" if frame["function"] else ""
    return f"{file}:{frame['line']}{function}"


_CHANGING = (
    re.compile(r"/(?:tmp|var/tmp|dev/shm|proc|run)/[^\s'\",:;)\]]+"),
    re.compile(r"\b0[xX][0-9a-fA-F]+"),
    re.compile(r"\b(?=[0-9a-fA-F-]*[0-9])[0-9a-fA-F]{8}[0-9a-fA-F-]*\b"),
    re.compile(r"[0-9]+(?:[.,:][0-9]+)*(?: ?[KMGT]i?B\b)?"),
)
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>[0-9]+)(?:, in (?P<function>[^\n]*))?'
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|^<frozen |/dlrover_cli/")
