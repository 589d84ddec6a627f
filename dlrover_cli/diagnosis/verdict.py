"""One block about a job that failed: what, since when, where in the user's code, and what to do."""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure, WorkerPhase
from dlrover_cli.diagnosis.causes import Cause, cause_from, is_in_collective, known_cause
from dlrover_cli.diagnosis.frames import Frame, frame_from, own_frames
from dlrover_cli.diagnosis.headline import headline_of
from dlrover_cli.diagnosis.last_words import last_words
from dlrover_cli.words import duration, printable, signal_name

_MOST_WORDS = 5
_LONGEST_LINE = 160
_PHASES = {
    WorkerPhase.START_UP: "before its first step",
    WorkerPhase.TRAINING: "in training",
    WorkerPhase.UNKNOWN: "",
}
_CRASHES: Mapping[int, str] = {
    signal.SIGSEGV: "crashed with a segmentation fault",
    signal.SIGBUS: "crashed with a bus error",
    signal.SIGABRT: "aborted",
    signal.SIGILL: "crashed with an illegal instruction",
    signal.SIGFPE: "crashed with an arithmetic error",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person has to know about the failure that ended a job."""

    rank: int | None
    host: str
    what: str
    """The end of that rank in words."""
    at: float
    """Seconds since the epoch."""
    when: str
    frames: tuple[Frame, ...]
    last_words: tuple[str, ...]
    others: str
    """What became of the other ranks; empty if there were none."""
    decided: str
    cause: Cause | None
    logs: str

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "host": self.host,
            "what": self.what,
            "at": self.at,
            "when": self.when,
            "frames": [frame.to_json() for frame in self.frames],
            "last_words": list(self.last_words),
            "others": self.others,
            "decided": self.decided,
            "cause": None if self.cause is None else self.cause.to_json(),
            "logs": self.logs,
        }


def verdict_from(document: Mapping[str, Any]) -> Verdict:
    """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    cause = document["cause"]
    return Verdict(
        rank=document["rank"],
        host=str(document["host"]),
        what=str(document["what"]),
        at=float(document["at"]),
        when=str(document["when"]),
        frames=tuple(frame_from(each) for each in document["frames"]),
        last_words=tuple(str(line) for line in document["last_words"]),
        others=str(document["others"]),
        decided=str(document["decided"]),
        cause=None if cause is None else cause_from(cause),
        logs=str(document["logs"]),
    )


def verdict_on(
    failure: AgentFailureInfo,
    *,
    started: float,
    world_size: int,
    alike: Sequence[int],
    decided: str,
    logs: str,
    succeeded: Sequence[int] = (),
) -> Verdict:
    """``alike`` are the ranks that failed by themselves, too, and not with the first one."""
    root = failure.root_cause
    at = failure.timestamp if root is None or not root.time_ns else root.time_ns / 1e9
    return Verdict(
        rank=None if root is None else root.global_rank,
        host=failure.host,
        what="its workers failed" if root is None else describe(root, failure.kind),
        at=at,
        when=_when(failure, at, started),
        frames=_frames(failure, root),
        last_words=_shown(last_words(failure), root),
        others=_others(failure, world_size, alike, succeeded),
        decided=decided,
        cause=known_cause(failure),
        logs=logs,
    )


def describe(worker: WorkerFailure, kind: FailureKind) -> str:
    """The end of a worker: an exception's own words, or those for a signal or an exit code."""
    if kind is FailureKind.HANG:
        return f"hangs: {worker.message or 'it does not move'}"
    if worker.exception_type is not None:
        headline = headline_of(worker).strip().partition("\n")[0]
        return f"raised {headline}".removesuffix(":")
    if worker.signal is not None:
        return _of_signal(worker.signal, oom=worker.oom)
    if worker.exit_code is None:
        return worker.message or "failed"
    how = worker.message.strip().partition("\n")[0]
    return f"exited with code {worker.exit_code}" + (
        f": {how}" if how else ", with no exception on record"
    )


def lines_of(verdict: Verdict) -> list[str]:
    """The block, for a terminal: at most 25 lines."""
    who = "the job" if verdict.rank is None else f"rank {verdict.rank}"
    lines = [f"FAILED: {who} on {verdict.host} {verdict.what}"[:_LONGEST_LINE]]
    lines.append(f"  when     {verdict.when}")
    for index, frame in enumerate(verdict.frames):
        lines.append(f"  {'' if index else 'where':8} {frame.place}")
        if frame.source:
            lines.append(f"               {frame.source}"[:_LONGEST_LINE])
    for index, line in enumerate(verdict.last_words):
        lines.append(f"  {'' if index else 'stderr':8} {line}"[:_LONGEST_LINE])
    if verdict.others:
        lines.append(f"  others   {verdict.others}")
    lines.append(f"  decided  {verdict.decided}")
    if verdict.cause is not None:
        sure = verdict.cause.confidence
        lines.append(f"  hint     {verdict.cause.name} ({sure}): {verdict.cause.hint}")
    lines.append(f"  logs     {verdict.logs}")
    return [printable(line) for line in lines]  # a worker wrote some of it


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2 and 5`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    words = ["-".join(map(str, span)) for span in spans]
    listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "none"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed}"


def _of_signal(signum: int, *, oom: bool) -> str:
    name = signal_name(signum)
    if oom:
        return f"was killed by the kernel, which was out of memory ({name})"
    crash = _CRASHES.get(signum)
    return f"was killed by {name}" if crash is None else f"{crash} ({name})"


def _when(failure: AgentFailureInfo, at: float, started: float) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    parts = [f"{clock}, {duration(at - started)} after the start", f"attempt {failure.attempt}"]
    if _PHASES[failure.phase]:
        parts.append(_PHASES[failure.phase])
    if failure.steps:
        parts.append(f"{failure.steps} steps done")
    return ", ".join(parts)


def _frames(failure: AgentFailureInfo, root: WorkerFailure | None) -> tuple[Frame, ...]:
    if root is None:
        return ()
    stack = failure.stacks.get(str(root.global_rank), "") or root.traceback
    return own_frames(stack)


def _shown(words: Sequence[str], root: WorkerFailure | None) -> tuple[str, ...]:
    """The last lines that say something, and that the verdict does not say anyway."""
    said = "" if root is None else f"{root.message}\n{root.traceback}"
    new = [line for line in words if line.strip() and line.strip() not in said]
    return tuple(new[-_MOST_WORDS:])


def _others(
    failure: AgentFailureInfo, world_size: int, alike: Sequence[int], succeeded: Sequence[int]
) -> str:
    root = failure.root_cause
    if root is None or world_size <= 1:
        return ""
    too = sorted(set(alike) - {root.global_rank})
    rest = [rank for rank in range(world_size) if rank != root.global_rank and rank not in too]
    parts = []
    if too:
        parts.append(
            f"{ranks_in_words(too)} failed by {'themselves' if too[1:] else 'itself'}, too"
        )
    if succeeded:
        parts.append(f"{ranks_in_words(succeeded)} had succeeded")
    rest = [rank for rank in rest if rank not in succeeded]
    late = {} if failure.kind is FailureKind.HANG else _elsewhere(failure, rest)
    for place in dict.fromkeys(late.values()):
        ranks = [rank for rank in late if late[rank] == place]
        parts.append(f"{ranks_in_words(ranks)} had not come to it, and stood at {place}")
    if rest := [rank for rank in rest if rank not in late]:
        parts.append(f"{ranks_in_words(rest)} went down with it")
    return "; ".join(parts)


def _elsewhere(failure: AgentFailureInfo, ranks: Sequence[int]) -> dict[int, str]:
    """Where those stand for whom others have waited in vain, by rank."""
    places = {}
    for rank in ranks:
        stack = failure.stacks.get(str(rank), "")
        frames = own_frames(stack)
        if frames and not is_in_collective(stack):
            places[rank] = frames[-1].place
    return places
