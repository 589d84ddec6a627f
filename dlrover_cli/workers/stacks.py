"""Where the workers are: their Python stacks on request, grouped so that the odd one stands out."""

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.workers.beats import BeatPage
from dlrover_cli.workers.bootstrap.in_worker.faults import STACKS_FILE
from dlrover_cli.workers.stack_requests import StackRequest

_LOOK_SECONDS = 0.002
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_WAITS_FOR_PEERS = ("_engine_run_backward", "synchronize")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def is_standard_library(self) -> bool:
        return self.file.startswith("<frozen") or (
            "/lib/python3." in self.file and not self.is_installed
        )

    @property
    def is_installed(self) -> bool:
        return "site-packages" in self.file or "dist-packages" in self.file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker's main thread is: the library function it sits in, and the user's line."""

    frame: Frame
    own: Frame | None

    def __str__(self) -> str:
        if self.own is None or self.own == self.frame:
            return f"{self.frame.function} ({self.frame.name}:{self.frame.line})"
        return (
            f"{self.frame.function} ({self.frame.name}), "
            f"called from {self.own.name}:{self.own.line} in {self.own.function}"
        )


def dump_stacks(
    workers: Mapping[int, int],
    directories: Mapping[int, Path],
    pages: Mapping[int, BeatPage],
    deadline: float,
) -> dict[int, str]:
    """The stacks of all threads of each worker, by local rank.

    ``workers`` has their pids, ``directories`` and ``pages`` what they were told to be theirs.
    Returns by ``deadline`` (``time.monotonic``) at the latest. A worker that gives no stack gets a
    sentence instead that says why. The workers go on: the request goes only to those that handle
    it, and costs them an interrupted system call at most.
    """
    requests = {
        rank: StackRequest(pid, Path(directories[rank]) / STACKS_FILE, pages[rank])
        for rank, pid in workers.items()
        if rank in directories and rank in pages
    }
    try:
        for request in requests.values():
            request.send()
        waiting = list(requests.values())
        while (waiting := [request for request in waiting if not request.is_answered()]) and (
            time.monotonic() < deadline
        ):
            time.sleep(_LOOK_SECONDS)
        return {local_rank: request.answer() for local_rank, request in requests.items()}
    finally:
        for request in requests.values():
            request.close()


def parse_stacks(text: str) -> list[list[Frame]]:
    """One list of frames per thread, innermost first; the main thread is the last."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif threads and (match := _FRAME.fullmatch(line)):
            threads[-1].append(Frame(match["file"], int(match["line"]), match["function"]))
    return threads


def place_of(text: str) -> Place | None:
    """Where the main thread is; None if the text has no stack."""
    frames = next((frames for frames in reversed(parse_stacks(text)) if frames), None)
    if frames is None:
        return None
    own = next((f for f in frames if not f.is_standard_library and not f.is_installed), None)
    return Place(next((f for f in frames if not f.is_standard_library), frames[0]), own)


def summarise(stacks: Mapping[int, str]) -> str:
    """One line per place, with the ranks that are there; the largest group first."""
    return "\n".join(f"{_ranks_in_words(ranks)}: {place}" for place, ranks in groups_of(stacks))


def groups_of(stacks: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Each place in words with the ranks that are there; the largest group first."""
    groups = sorted(_groups(stacks).items(), key=lambda group: (-len(group[1]), group[1]))
    return [(place if isinstance(place, str) else f"in {place}", ranks) for place, ranks in groups]


def odd_one_out(stacks: Mapping[int, str]) -> int | None:
    """The one rank that is not where the others wait for it; None if no single one stands out."""
    if len(stacks) < 2:
        return None
    outside = [rank for rank, text in stacks.items() if not _waits_for_peers(text)]
    if len(outside) == 1:
        return outside[0]
    largest, *others = sorted(_groups(stacks).values(), key=len, reverse=True)
    if len(largest) >= 2 and len(others) == 1 and len(others[0]) == 1:
        return others[0][0]
    return None


def _groups(stacks: Mapping[int, str]) -> dict[Place | str, list[int]]:
    groups: defaultdict[Place | str, list[int]] = defaultdict(list)
    for rank, text in sorted(stacks.items()):
        place = place_of(text)
        groups[text.strip() if place is None else place].append(rank)
    return groups


def _waits_for_peers(text: str) -> bool:
    place = place_of(text)
    return place is not None and (
        place.frame.name == "distributed_c10d.py" or place.frame.function in _WAITS_FOR_PEERS
    )


def _ranks_in_words(ranks: Sequence[int]) -> str:
    """``rank 3``, ``2 ranks (0, 1)``, ``7 ranks (0-2, 4-7)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    names = ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
    return f"{len(ranks)} ranks ({names})"
